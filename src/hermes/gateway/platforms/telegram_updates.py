"""Translates Telegram updates into messages for the gateway.

Classifies Telegram's errors: retry later, never, or never in that place. No error contains the token.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.gateway.platform import Chat, ChatType, Inbound, MessageGone, Moved, SendLater, SendNever
from hermes.gateway.platforms.text import as_quote, first_name_of, one_name, shorten, well_formed

if TYPE_CHECKING:
    import telegram
    from telegram.error import RetryAfter, TelegramError

NAME = "telegram"
COMMAND = re.compile(r"/\w+(?:@(?P<bot>\w+))?(?=\s|$)")

ATTACHMENTS = {
    "animation": "an animation",
    "audio": "an audio file",
    "contact": "a contact",
    "dice": "a dice",
    "document": "a file",
    "game": "a game",
    "paid_media": "paid media",
    "photo": "a photo",
    "poll": "a poll",
    "sticker": "a sticker",
    "story": "a story",
    "venue": "a place",
    "location": "a location",
    "video": "a video",
    "video_note": "a video message",
    "voice": "a voice message",
}
"""Attachments by field name, the more specific first: an animation is a document too, a place a location."""


class UpdateReader(Struct, frozen=True):
    """Translates updates for one bot. With `mentions_only`, only messages to the bot are accepted in groups."""

    bot_id: int
    username: str
    mentions_only: bool

    def read(self, update: telegram.Update) -> Inbound | Moved | None:
        """Return the message of an update; None if it is not addressed to the bot. May raise any error for a malformed
        update."""
        edited = update.message is None
        message = update.edited_message if edited else update.message
        if message is None or message.chat.type not in ("private", "group", "supergroup"):
            return None
        if (moved := _move(message)) is not None:
            return moved
        if message.from_user is None or (message.from_user.is_bot and not _is_anonymous_admin(message)):
            return None
        text = self._agent_text(message, edited=edited)
        if text is None:
            return None
        # Another bot in the same chat counts its messages from the beginning again.
        own = f"{self.bot_id:d}.{message.message_id:d}"
        return Inbound(
            chat=chat_of(message),
            message_id=f"{own}.{update.update_id:d}" if edited else own,
            text=text,
            author_id=f"{_author(message).id:d}",
            author_name=_name_of(_author(message)),
            author_alt=well_formed(_author(message).username or "") or None,
        )

    def _agent_text(self, message: telegram.Message, *, edited: bool) -> str | None:
        """Return the text for the agent; None if it is not addressed to the bot. Forwarded text is quoted and never a
        command: others wrote it."""
        raw, origin = well_formed(message.text or message.caption or ""), _origin(message)
        command = None if origin else COMMAND.match(raw)
        if command is not None and command["bot"] and command["bot"].lower() != self.username.lower():
            return None
        if message.chat.type != "private" and self.mentions_only and not self._addressed(message, raw):
            return None
        text = self._without_mention(raw)
        if command is not None and not edited:
            return "/help" if re.fullmatch(r"/start(\s.*)?", text, re.DOTALL) else text
        attached = _attachment(message)
        if not text and (edited or not attached):
            return None
        said = f"(edited) {text}" if edited else text
        parts = [origin, _quote(message), attached, as_quote(said) if origin else said]
        return "\n\n".join(part for part in parts if part)

    def _addressed(self, message: telegram.Message, text: str) -> bool:
        replied = _replied_to(message)
        to_us = replied is not None and replied.from_user is not None and replied.from_user.id == self.bot_id
        return to_us or COMMAND.match(text) is not None or self._mention.search(text) is not None

    def _without_mention(self, text: str) -> str:
        bare = re.sub(rf"^(/\w+)@{re.escape(self.username)}\b", r"\1", text, flags=re.IGNORECASE)
        return self._mention.sub("", bare).strip() or text

    @property
    def _mention(self) -> re.Pattern[str]:
        return re.compile(rf"(?:,?[ \t]+)?(?<![\w/])@{re.escape(self.username)}(?!\w)[,:]?", re.IGNORECASE)


def chat_of(message: telegram.Message) -> Chat:
    """Return the chat of a message. Only a topic is a thread; Telegram numbers chains of replies too."""
    thread = message.message_thread_id if message.is_topic_message else None
    kind: ChatType = "dm" if message.chat.type == "private" else "group"
    return Chat(NAME, kind, f"{message.chat.id:d}", f"{thread:d}" if thread else None)


def group_of(chat_id: int) -> Chat:
    return Chat(NAME, "group", f"{chat_id:d}")


def _move(message: telegram.Message) -> Moved | None:
    """Return the move in a message, if any. A group that becomes a supergroup gets one message at its end, and the
    supergroup one at its beginning."""
    here = group_of(message.chat.id)
    if message.migrate_to_chat_id:
        return Moved(here, group_of(message.migrate_to_chat_id))
    if message.migrate_from_chat_id:
        return Moved(group_of(message.migrate_from_chat_id), here)
    return None


def _is_anonymous_admin(message: telegram.Message) -> bool:
    return message.sender_chat is not None and message.sender_chat.id == message.chat.id


def _author(message: telegram.Message) -> telegram.User | telegram.Chat:
    assert message.from_user is not None, "`read` looked"
    anonymous = message.sender_chat if _is_anonymous_admin(message) else None
    return anonymous or message.from_user


def _name_of(someone: telegram.User | telegram.Chat) -> str:
    title = getattr(someone, "title", None)  # a chat has one, a person has not
    names = (title, someone.full_name, someone.username)
    return first_name_of(*names, default=str(someone.id))


def _replied_to(message: telegram.Message) -> telegram.Message | None:
    """Return the replied-to message. In a topic every message replies to the beginning of the topic; that is
    ignored."""
    replied = message.reply_to_message
    return None if replied is None or replied.forum_topic_created is not None else replied


def _quote(message: telegram.Message) -> str:
    replied = _replied_to(message)
    chosen = message.quote.text if message.quote is not None else None
    text = well_formed(chosen or (replied and (replied.text or replied.caption)) or "")
    if not text:
        return f"> ({_attachment(replied)})" if replied is not None and _attachment(replied) else ""
    return as_quote(shorten(text))


def _origin(message: telegram.Message) -> str:
    origin = message.forward_origin
    if origin is None:
        return ""
    people = (getattr(origin, name, None) for name in ("sender_user", "sender_chat", "chat"))
    names = [_name_of(person) for person in people if person is not None]
    return f"(forwarded from {names[0] if names else one_name(getattr(origin, 'sender_user_name', 'someone'))})"


def _attachment(message: telegram.Message) -> str:
    """Return a description of an attachment, because only text can be read here."""
    for field, words in ATTACHMENTS.items():
        if found := getattr(message, field):
            return f"[{words}{well_formed(_details(field, found))}]"
    return ""


def _details(field: str, found: telegram.TelegramObject) -> str:
    match field:
        case "document" | "audio":
            name = getattr(found, "file_name", None)
            return f" “{name}”, which cannot be opened here" if name else ", which cannot be opened here"
        case "sticker" | "dice":
            return f" {getattr(found, 'emoji', None) or ''}".rstrip()
        case "location":
            return f" at {getattr(found, 'latitude', '?')}, {getattr(found, 'longitude', '?')}"
        case "venue":
            return f": {getattr(found, 'title', '')}, {getattr(found, 'address', '')}"
        case "contact":
            return f": {getattr(found, 'first_name', '')}, {getattr(found, 'phone_number', '')}"
        case "poll":
            return f": {getattr(found, 'question', '')}"
        case _:
            return ", which cannot be seen or heard here"


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
