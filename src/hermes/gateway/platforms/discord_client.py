"""One connection to Discord. Loaded only when Discord is switched on: it imports the library."""

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
"""Messages that wait to be stored. Later ones are dropped and read from Discord again."""
MAX_RATE_LIMIT_SECONDS = 30.0
"""The library waits as long by itself; a longer pause is the outbound queue's."""

HEARTBEAT_TIMEOUT_SECONDS = 60.0
"""A connection that answers no heartbeat for so long is dead."""


class Gap(Struct, frozen=True):
    """Messages may be missing before whatever follows: the connection began anew, or too many waited.

    `missed_after` has the message before the first missing one, of each channel where one was dropped.
    """

    missed_after: dict[int, int] = field(default_factory=dict)


class ArrivedMessage(Struct, frozen=True):
    """A message, new or edited."""

    message: discord.Message
    edited: bool = False


Happening: TypeAlias = Gap | ArrivedMessage

EMPTY_FIELDS: dict[str, Json] = {"content": "", "type": 0, "mentions": [], "mention_roles": []}
"""Fields that the library and we read from each message, beside its id, with their values when they are missing."""
PLAIN_FIELDS = ("author", "channel_id", "content", "edited_timestamp", "guild_id", "id", "mentions", "type")
"""The fields that are read when the library fails on another field."""


class MessageState(ConnectionState["DiscordClient"]):
    """Reads each message as far as the library can. Without it, a message that the library cannot read ends the
    connection, or hides the later messages of its channel."""

    def create_message(self, *, channel: Any, data: Any) -> discord.Message:
        """Read a message of a channel's history."""
        create = super().create_message
        return _read_plainer(data, lambda part: create(channel=channel, data=part))

    def parse_message_create(self, data: Any) -> None:
        """Read a new message."""
        _read_plainer(data, super().parse_message_create)

    def parse_message_update(self, data: Any) -> None:
        """Read an edited message."""
        _read_plainer(data, super().parse_message_update)


def _read_plainer(data: Json, read: Callable[[Json], T]) -> T:
    """Return what `read` makes of a message, or of as much of it as it can read."""
    plain = {name: data[name] for name in PLAIN_FIELDS if name in data}
    for part in (data, {**EMPTY_FIELDS, **plain}):
        try:
            return read(part)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("part of message %s cannot be read: %s", data.get("id"), type(error).__name__)
    return read({**EMPTY_FIELDS, "id": data["id"], "channel_id": data["channel_id"]})


class DiscordClient(discord.Client):
    """Queues what happens in the order of its arrival, and reconnects by itself."""

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
        """When the session began, as the id that a message of that moment would have."""
        self.guilds_known = asyncio.Event()
        self.connected = asyncio.Event()

    def _get_state(self, **options: Any) -> MessageState:
        return MessageState(
            dispatch=self.dispatch, handlers=self._handlers, hooks=self._hooks, http=self.http, **options
        )

    async def setup_hook(self) -> None:
        """Ask a server that is not Discord's own where its gateway is; the library knows only the official one."""
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
        """A session began: what was said since the last one is not repeated."""
        self.guilds_known.clear()
        self.began_at = discord.utils.time_snowflake(discord.utils.utcnow())
        self._happenings.put_nowait(Gap())

    async def on_ready(self) -> None:
        """All servers with their channels are known."""
        self.connected.set()
        self.guilds_known.set()

    async def on_resumed(self) -> None:
        """The session goes on; Discord repeats what was missed."""
        self.connected.set()

    async def on_disconnect(self) -> None:
        """The connection is lost; the library opens another one."""
        self.connected.clear()

    async def on_message(self, message: discord.Message) -> None:
        """Queue a message."""
        if self._missed_after or self._happenings.qsize() >= MAX_WAITING_MESSAGES:
            self._missed_after.setdefault(message.channel.id, message.id - 1)
        else:
            self._happenings.put_nowait(ArrivedMessage(message))

    async def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        """Queue an edit by a person; a link that got its preview is none. In a flood edits are dropped."""
        if payload.message.edited_at is not None and self._happenings.qsize() < MAX_WAITING_MESSAGES:
            self._happenings.put_nowait(ArrivedMessage(payload.message, edited=True))

    async def on_error(self, event_method: str, /, *_args: object, **_kwargs: object) -> None:
        """Log what a handler raised, without the library's printing to standard error."""
        log.exception("%s failed", event_method)


def use_server(base_url: str) -> None:
    """Send all requests of this process to another server than Discord's own."""
    Route.BASE = base_url
