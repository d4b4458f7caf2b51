"""Classifies Telegram's errors: retry later, never, or never in that place. No error contains the token."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from hermes.gateway.platform import MessageGone, SendLater, SendNever

if TYPE_CHECKING:
    from telegram.error import RetryAfter, TelegramError

REFUSED_TOKEN_WAIT_SECONDS = 60.0
UNREADABLE_MARKUP = ("can't parse", "entit")
GONE = ("message to edit not found", "message can't be edited", "message_id_invalid", "message identifier is not")
UNCHANGED = "message is not modified"
HIDDEN = "(hidden)"


def describe(error: TelegramError, token: str, host: str) -> str:
    """Return an error as one line without the token."""
    from telegram.error import NetworkError, TimedOut

    if type(error) in (NetworkError, TimedOut):  # BadRequest is a NetworkError too
        why = str(error).replace(token, HIDDEN).replace("\n", " ").removeprefix("httpx.").strip(": ")
        return f"cannot reach {host}" + (f" ({why})" if why else "")
    return f"{type(error).__name__}: {error}".replace(token, HIDDEN).replace("\n", " ")


def is_about_markup(error: TelegramError) -> bool:
    """Return True if the text would be accepted without formatting."""
    return any(words in str(error).lower() for words in UNREADABLE_MARKUP)


def is_unchanged(error: TelegramError) -> bool:
    """Return True if an edit was refused because nothing changed."""
    return UNCHANGED in str(error).lower()


def translate(error: TelegramError, token: str, host: str) -> SendLater | SendNever:
    """Return the gateway's exception for a failed call. Unknown errors are retried."""
    from telegram.error import BadRequest, Forbidden, InvalidToken, RetryAfter

    reason = describe(error, token, host)
    match error:
        case RetryAfter():
            return SendLater(reason, seconds_of(error))
        case InvalidToken():  # the owner may mend it: no fault of the message
            return SendLater(reason, REFUSED_TOKEN_WAIT_SECONDS)
        case BadRequest() if any(words in str(error).lower() for words in GONE):
            return MessageGone(reason)
        case BadRequest() | Forbidden():
            return SendNever(reason)
        case _:
            return SendLater(reason)


def seconds_of(error: RetryAfter) -> float:
    """Return the seconds that Telegram asks to wait. The library is moving from a number to a timedelta."""
    asked = error.retry_after
    return asked.total_seconds() if isinstance(asked, timedelta) else float(asked)
