"""One connection to Discord. Imports the library, so it is loaded only if Discord is enabled."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import discord
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route
from discord.state import ConnectionState
from msgspec import Struct, field

from hermes.types import Json

log = logging.getLogger("hermes.gateway.discord")
T = TypeVar("T")

# orjson, which the library prefers, refuses half a surrogate pair, and so everything else that came with it.
discord.utils._from_json = json.loads  # type: ignore[assignment]

OFFICIAL_API = Route.BASE
MAX_WAITING_MESSAGES = 10_000
"""Received messages that wait to be stored. Further ones are dropped and read from Discord again."""
MAX_RATE_LIMIT_SECONDS = 30.0
"""The library itself waits up to this long; the outbound queue handles longer pauses."""

HEARTBEAT_TIMEOUT_SECONDS = 60.0
"""A connection without an answer to a heartbeat for this long counts as lost."""


class Gap(Struct, frozen=True):
    """A gap before the next message: the connection began anew, or too many messages waited.

    `missed_after` has the id before the first missing message of each channel where one was dropped.
    """

    missed_after: dict[int, int] = field(default_factory=dict)


class ArrivedMessage(Struct, frozen=True):
    """A new or edited message."""

    message: discord.Message
    edited: bool = False


Happening: TypeAlias = Gap | ArrivedMessage

EMPTY_FIELDS: dict[str, Json] = {"content": "", "type": 0, "mentions": [], "mention_roles": []}
"""Required fields of a message, beside its id, with their values when they are missing."""
PLAIN_FIELDS = ("author", "channel_id", "content", "edited_timestamp", "guild_id", "id", "mentions", "type")
"""The fields that are kept when the library cannot parse another one."""


class MessageState(ConnectionState["DiscordClient"]):
    """Parses each message as far as the library can. Without this class, an unreadable message would end the connection
    or hide later messages of its channel."""

    def create_message(self, *, channel: Any, data: Any) -> discord.Message:
        """Parse a message of a channel's history."""
        create = super().create_message
        return _read_plainer(data, lambda part: create(channel=channel, data=part))

    def parse_message_create(self, data: Any) -> None:
        """Parse a new message."""
        _read_plainer(data, super().parse_message_create)

    def parse_message_update(self, data: Any) -> None:
        """Parse an edited message."""
        _read_plainer(data, super().parse_message_update)


def _read_plainer(data: Json, read: Callable[[Json], T]) -> T:
    """Return the result of `read` for a message, or for as many of its fields as it can read."""
    plain = {name: data[name] for name in PLAIN_FIELDS if name in data}
    for part in (data, {**EMPTY_FIELDS, **plain}):
        try:
            return read(part)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("part of message %s cannot be read: %s", data.get("id"), type(error).__name__)
    return read({**EMPTY_FIELDS, "id": data["id"], "channel_id": data["channel_id"]})


class DiscordClient(discord.Client):
    """A client that queues events in order of arrival and reconnects by itself."""

    def __init__(self, base_url: str) -> None:
        for name, level in (("discord", logging.WARNING), ("discord.client", logging.CRITICAL)):
            logging.getLogger(name).setLevel(level)  # tracebacks of each lost connection; we report it in a line
        intents = discord.Intents.none()
        intents.guilds = intents.guild_messages = intents.dm_messages = intents.message_content = True
        super().__init__(
            intents=intents,
            max_messages=None,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            allowed_mentions=discord.AllowedMentions.none(),
            max_ratelimit_timeout=MAX_RATE_LIMIT_SECONDS,
            heartbeat_timeout=HEARTBEAT_TIMEOUT_SECONDS,
        )
        self._base_url = base_url
        self._happenings: asyncio.Queue[Happening] = asyncio.Queue()
        self._missed_after: dict[int, int] = {}
        self.began_at = 0
        """Start of the session, as the id of a message at that moment."""
        self.guilds_known = asyncio.Event()
        self.connected = asyncio.Event()

    def _get_state(self, **options: Any) -> MessageState:
        return MessageState(
            dispatch=self.dispatch, handlers=self._handlers, hooks=self._hooks, http=self.http, **options
        )

    async def setup_hook(self) -> None:
        """Ask a server other than Discord's for its gateway address; the library knows only the official one."""
        if self._base_url != OFFICIAL_API:
            found = await self.http.request(Route("GET", "/gateway"))
            DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(found["url"])

    async def next_happening(self) -> Happening:
        """Wait for the next message or gap."""
        if self._missed_after and self._happenings.empty():
            missed, self._missed_after = self._missed_after, {}
            return Gap(missed)
        return await self._happenings.get()

    # The library calls these in the order of what happens, each in a task of its own that begins in that order.

    async def on_connect(self) -> None:
        """Queue a gap: Discord does not repeat messages of the time before this session."""
        self.guilds_known.clear()
        self.began_at = discord.utils.time_snowflake(discord.utils.utcnow())
        self._happenings.put_nowait(Gap())

    async def on_ready(self) -> None:
        """Note that all servers and their channels are known."""
        self.connected.set()
        self.guilds_known.set()

    async def on_resumed(self) -> None:
        """Note that the session was resumed; Discord repeats missed messages."""
        self.connected.set()

    async def on_disconnect(self) -> None:
        """Note that the connection is lost; the library opens another one."""
        self.connected.clear()

    async def on_message(self, message: discord.Message) -> None:
        """Queue a message."""
        if self._missed_after or self._happenings.qsize() >= MAX_WAITING_MESSAGES:
            self._missed_after.setdefault(message.channel.id, message.id - 1)
        else:
            self._happenings.put_nowait(ArrivedMessage(message))

    async def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        """Queue an edit by a person, not the loading of a link preview. Edits are dropped while the queue is full."""
        if payload.message.edited_at is not None and self._happenings.qsize() < MAX_WAITING_MESSAGES:
            self._happenings.put_nowait(ArrivedMessage(payload.message, edited=True))

    async def on_error(self, event_method: str, /, *_args: object, **_kwargs: object) -> None:
        """Log an error of a handler; the library would print to standard error."""
        log.exception("%s failed", event_method)


def use_server(base_url: str) -> None:
    """Direct all requests of this process to another server than Discord's."""
    Route.BASE = base_url
