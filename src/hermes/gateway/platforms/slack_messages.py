"""Translates Slack's events into messages for the gateway."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from msgspec import Struct

from hermes.gateway.platform import Chat, Inbound
from hermes.gateway.platforms.inbound_text import one_name, well_formed
from hermes.gateway.platforms.slack_text import mentioned, to_plain
from hermes.types import Json

NAME = "slack"
MAX_MENTIONS_NAMED = 10
MAX_FILES_NAMED = 5
HEARD_SUBTYPES = {None, "bot_message", "file_share", "me_message", "thread_broadcast"}
DIRECT_CHAT = "im"
KEY_ENTRY = "hermes_message"
"""The type of our metadata entry on messages."""


class EventReader(Struct, frozen=True):
    """Translates events for one bot. With `mentions_only`, only messages to the bot are accepted in channels.

    `name_of` returns the name of a person by id.
    """

    bot_user_id: str
    mentions_only: bool
    name_of: Callable[[str], Awaitable[str]]
    agents: frozenset[str] = frozenset()
    """Ids of other apps, or of their users, whose messages in channels are accepted."""

    async def read(self, event: Json) -> Inbound | None:
        """Return the message for the gateway; None for messages of bots, of Slack itself, or to somebody else."""
        said, edited = _said_in(event)
        author = None if said is None else self._author_of(said)
        if said is None or author is None:
            return None
        direct = event.get("channel_type") == DIRECT_CHAT or str(event["channel"]).startswith("D")
        raw = str(said.get("text") or "")
        if not direct and self.mentions_only and not self._is_addressed(said, raw):
            return None
        text = await self._readable(raw)
        if edited:
            text = f"(edited) {text}" if text else ""
        elif re.fullmatch(r"/?start(\s.*)?", text, re.DOTALL) and text.startswith("/"):
            text = "/help"
        files = "" if edited else _describe_files(said.get("files") or [])
        if not text and not files:
            return None
        user, is_agent = author, bool(said.get("bot_id"))
        if is_agent and (direct or edited):  # an edit is a streamed reply
            return None
        return Inbound(
            chat=chat_of(event, said, direct=direct),
            message_id=message_id_of(event["channel"], said, edited=edited),
            text=f"{files}\n\n{text}" if files and text else files or text,
            author_id=user,
            author_name=one_name(str(said.get("username") or "") or await self.name_of(user)) or user,
            author_is_agent=is_agent,
        )

    def _author_of(self, said: Json) -> str | None:
        """Return the id of an accepted author: a person, or an app among the agents."""
        user, app = said.get("user"), said.get("bot_id")
        if user in (self.bot_user_id, "USLACKBOT"):
            return None
        if app:
            return next((str(one) for one in (user, app) if one in self.agents), None)
        return None if user is None else str(user)

    def _is_addressed(self, said: Json, raw: str) -> bool:
        return said.get("parent_user_id") == self.bot_user_id or self.bot_user_id in mentioned(raw)

    async def _readable(self, raw: str) -> str:
        """Return the text without the bot's mention, and with names in place of ids."""
        own = rf"<@{re.escape(self.bot_user_id)}(?:\|[^<>]*)?>"
        bare = re.sub(rf"(?:,?[ \t]+)?{own}[,:]?", "", raw).strip() or raw
        others = sorted(mentioned(bare))[:MAX_MENTIONS_NAMED]
        return to_plain(bare, {one: one_name(await self.name_of(one)) for one in others}).strip()


def _said_in(event: Json) -> tuple[Json | None, bool]:
    """Return the message of an event, and whether a person edited it. A loaded link preview does not count as an
    edit."""
    if event.get("type") not in ("message", "app_mention"):
        return None, False
    if event.get("subtype") == "message_changed":
        now, before = event.get("message") or {}, event.get("previous_message") or {}
        changed = now.get("edited") and now.get("text") != before.get("text")
        return (now if changed and now.get("subtype") in HEARD_SUBTYPES else None), True
    return (event if event.get("subtype") in HEARD_SUBTYPES else None), False


def message_id_of(channel: str, said: Json, *, edited: bool) -> str:
    """Return the id of a message. Time stamps are unique only within a channel."""
    version = f".{(said.get('edited') or {}).get('ts', '')}" if edited else ""
    return f"{channel}.{said['ts']}{version}"


def chat_of(event: Json, said: Json, *, direct: bool) -> Chat:
    """Return the chat of a message. A message with replies is not a thread itself."""
    thread = said.get("thread_ts")
    in_thread = thread is not None and thread != said["ts"]
    return Chat(NAME, "dm" if direct else "group", str(event["channel"]), str(thread) if in_thread else None)


def _describe_files(files: list[Json]) -> str:
    """Return a description of files, because only text can be read here."""
    names = [f"“{well_formed(str(one.get('name') or one.get('id')))}”" for one in files[:MAX_FILES_NAMED]]
    if not names:
        return ""
    more = f" and {len(files) - len(names)} more" if len(files) > len(names) else ""
    return f"[{'a file' if len(files) == 1 else 'files'} {', '.join(names)}{more}, which cannot be opened here]"


def key_entry(key: str) -> Json:
    """Return the metadata entry for a message that is sent with a key."""
    return {"event_type": KEY_ENTRY, "event_payload": {"key": key}}


def key_of(message: Json) -> str | None:
    """Return the key of a sent message, if it is visible."""
    entry = message.get("metadata") or {}
    return (entry.get("event_payload") or {}).get("key") if entry.get("event_type") == KEY_ENTRY else None
