"""Classifies Slack's errors: retry later, never, or never in that place. No error contains a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hermes.gateway.platform import MessageGone, SendLater, SendNever
from hermes.types import Json

if TYPE_CHECKING:
    from slack_sdk.errors import SlackApiError

REFUSED_TOKEN_WAIT_SECONDS = 60.0
REFUSED_TOKEN: Final = frozenset(
    ("account_inactive", "invalid_auth", "missing_scope", "not_allowed_token_type", "not_authed", "token_expired",
     "token_revoked")
)  # fmt: skip
UNREADABLE: Final = frozenset(
    ("access_denied", "channel_not_found", "ekm_access_denied", "enterprise_is_restricted", "is_archived",
     "is_inactive", "method_not_supported_for_channel_type", "missing_scope", "no_permission", "not_in_channel",
     "team_access_not_granted", "thread_not_found")
)  # fmt: skip
"""Errors of a single channel that may not be read; other channels are read all the same."""
GONE: Final = frozenset(("cant_update_message", "edit_window_closed", "message_not_found"))
NEVER: Final = frozenset(
    ("cannot_dm_bot", "channel_not_found", "invalid_blocks", "is_archived", "messages_tab_disabled", "msg_too_long",
     "no_permission", "no_text", "not_in_channel", "restricted_action", "thread_not_found", "user_not_found")
)  # fmt: skip


def translate(error: SlackApiError, reason: str) -> SendLater | SendNever:
    """Return the gateway's exception for a refused call. Unknown errors are retried."""
    code = code_of(error)
    if (wait_seconds := retry_after(error)) is not None:
        return SendLater(reason, wait_seconds)
    if code in REFUSED_TOKEN:  # the owner may mend it: no fault of the message
        return SendLater(reason, REFUSED_TOKEN_WAIT_SECONDS)
    if code in GONE:
        return MessageGone(reason)
    return SendNever(reason) if code in NEVER else SendLater(reason)


def describe(error: Exception, tokens: Sequence[str]) -> str:
    """Return an error as one line without the tokens."""
    code = code_of(error)
    if code in REFUSED_TOKEN:
        scope = _body_of(error).get("needed")
        lacks = f", which lacks {scope}" if scope else "'s scopes"
        return f"Slack refuses a token ({code}): check `slack.bot_token`, `slack.app_token` and the app{lacks}"
    line = f"Slack answers {code}" if code else f"{type(error).__name__}: {error}".replace("\n", " ")
    for token in tokens:
        line = line.replace(token, "(hidden)")
    return line


def code_of(error: Exception) -> str:
    """Return Slack's error code; "" for another kind of error."""
    status = _status_of(error)
    return "" if status is None else str(_body_of(error).get("error") or f"HTTP {status}")


def retry_after(error: SlackApiError) -> float | None:
    """Return the seconds that Slack asks to wait, or None."""
    if _status_of(error) != 429:
        return None
    return float(error.response.headers.get("Retry-After", 1))


def _body_of(error: Exception) -> Json:
    """Return the body of Slack's response; {} for other errors, and for responses of a proxy."""
    data = getattr(getattr(error, "response", None), "data", None)
    return data if isinstance(data, dict) else {}


def _status_of(error: Exception) -> int | None:
    """Return the HTTP status. The library puts it elsewhere for a response that is not JSON."""
    response = getattr(error, "response", None)
    return getattr(response, "status_code", None) or getattr(response, "status", None)
