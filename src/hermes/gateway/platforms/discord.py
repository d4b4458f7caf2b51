"""Discord: a bot with a websocket for received messages and HTTP for sent ones.

Discord does not repeat messages that a killed process did not store. So each channel has a read position, and a new
session first reads later messages over HTTP, then live ones:

    session begins ── channels with later messages ── read from their position ── live messages, in order
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hermes.clock import Clock
from hermes.errors import HermesError, SettingsError
from hermes.gateway.outbound import count_units
from hermes.gateway.platform import Chat, Intake, MessageGone, SendLater, SendNever
from hermes.gateway.platforms.discord_messages import NAME, MessageReader, render
from hermes.gateway.platforms.read_positions import ReadPositions
from hermes.gateway.platforms.set_up import DISCORD, how_to_install
from hermes.gateway.platforms.text import mark_late

if TYPE_CHECKING:
    import discord

    from hermes.gateway.platforms.discord_client import ArrivedMessage, DiscordClient, Gap

    Readable: TypeAlias = discord.abc.Messageable
    Listed: TypeAlias = discord.TextChannel | discord.VoiceChannel | discord.StageChannel | discord.Thread

log = logging.getLogger("hermes.gateway.discord")

MAX_MESSAGE_UNITS = 2000
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 60.0
NOT_CONNECTED_WAIT_SECONDS = 1.0
SILENT_LOSS_SECONDS = 10.0
"""A shorter loss is not reported: Discord ends each connection several times a day."""
LONG_LOSS_SECONDS = 60.0
REFUSED_TOKEN_WAIT_SECONDS = 60.0
THREAD_LIFE_SECONDS = 14 * 86_400
"""Archived threads that are silent for longer are not read after a start."""
UNKNOWN_MESSAGE_CODE = 10008
NONCE_CHARS = 25
NO_INTENT = (
    "the bot may not read messages: switch on “Message Content Intent” on the page “Bot” of "
    "https://discord.com/developers/applications"
)
T = TypeVar("T")


class DiscordOptions(Struct, frozen=True):
    """Options of the bot. With `marks_late`, a message that waited while no gateway ran is marked."""

    token: str
    base_url: str
    mentions_only: bool = True
    agents: frozenset[str] = frozenset()
    """Ids of other bots whose messages in channels are accepted."""
    marks_late: bool = False


class Discord:
    """The Discord adapter of one bot."""

    name = NAME
    longest_message = MAX_MESSAGE_UNITS

    def __init__(self, options: DiscordOptions, clock: Clock) -> None:
        try:
            self._library = import_module("hermes.gateway.platforms.discord_client")
        except ModuleNotFoundError as error:
            raise SettingsError(
                f"`discord.token` is set, but the package {error.name} is not installed",
                hint=f"Install it beside hermes: `{how_to_install(DISCORD)}`",
            ) from None
        self._options = options
        self._clock = clock
        self._client: DiscordClient | None = None
        self._connection: asyncio.Task[None] | None = None
        self._state = ""
        self._direct: set[str] = set()
        """Ids of channels that are known to be direct chats."""
        self._library.use_server(options.base_url)

    @property
    def can_edit(self) -> bool:
        """False if other agents listen: they would answer the beginning of a reply."""
        return not self._options.agents

    async def run(self, intake: Intake) -> None:
        """Receive until cancelled. A failure is reported when it begins and when it is over."""
        positions = ReadPositions(intake, lambda one, other: int(one) > int(other))
        await self._persist(intake, positions.load)
        wait_seconds = MIN_RETRY_SECONDS
        while True:
            await self.close()
            began_at = self._clock.now()
            reason = await self._serve(intake, positions)
            await self._report(intake, "failing", reason)
            if self._clock.now() - began_at > 2 * LONG_LOSS_SECONDS:
                wait_seconds = MIN_RETRY_SECONDS
            await self._clock.sleep(wait_seconds)
            wait_seconds = min(wait_seconds * 2, MAX_RETRY_SECONDS)

    async def send(self, chat: Chat, text: str, key: str = "") -> str:
        """Send one message. Discord recognises a repeated `key` for some minutes and sends nothing twice."""
        nonce = sha256(key.encode()).hexdigest()[:NONCE_CHARS] if key else None
        async with self._calling(chat) as channel:
            sent = await (channel.send(_fit(text), nonce=nonce) if nonce else channel.send(_fit(text)))
        return str(sent.id)

    async def was_sent(self, chat: Chat, key: str, since: float) -> bool:  # noqa: ARG002
        """Return False: Discord itself recognises the key when the message is sent again."""
        return False

    async def edit(self, chat: Chat, message_id: str, text: str) -> None:
        """Replace the text of a message we sent."""
        async with self._calling(chat) as channel:
            await channel.get_partial_message(int(message_id)).edit(content=_fit(text))

    async def show_typing(self, chat: Chat) -> None:
        """Show that a reply is coming; Discord hides the sign after ten seconds."""
        async with self._calling(chat) as channel:
            await channel.typing()

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()
        if self._connection is not None:
            self._connection.cancel()
            await asyncio.wait({self._connection})
            self._connection = None

    async def _serve(self, intake: Intake, positions: ReadPositions) -> str:
        """Receive over one connection and return the reason for its end. A cancelled call leaves it open, so that
        pending messages can be sent."""
        import aiohttp
        from discord import DiscordException, LoginFailure, PrivilegedIntentsRequired

        client = self._client = self._library.DiscordClient(self._options.base_url)
        connection = self._connection = asyncio.create_task(
            client.start(self._options.token), name="discord connection"
        )
        parts = [
            connection,
            asyncio.create_task(self._read(client, intake, positions), name="discord messages"),
            asyncio.create_task(self._watch(client, intake), name="discord state"),
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            return "the connection ended"
        except LoginFailure:
            return "Discord refuses the token: set a new `discord.token` and restart the gateway"
        except PrivilegedIntentsRequired:
            return NO_INTENT
        except (DiscordException, aiohttp.ClientError, OSError) as error:
            return self._describe(error)
        finally:
            for task in parts[1:]:
                task.cancel()
            await asyncio.wait(parts[1:])

    async def _watch(self, client: DiscordClient, intake: Intake) -> None:
        """Report whether the connection is up, ignoring short losses. Return after a long loss, because the library
        waits up to 17 minutes between two tries."""
        while await _is_set(client.connected, LONG_LOSS_SECONDS):
            await self._report(intake, "ok", f"@{client.user}")
            while client.connected.is_set():
                await self._clock.sleep(1.0)
            if not await _is_set(client.connected, SILENT_LOSS_SECONDS):
                await self._report(intake, "failing", "the connection to Discord is lost")

    async def _read(self, client: DiscordClient, intake: Intake, positions: ReadPositions) -> None:
        """Hand in events in order."""
        while True:
            happening = await client.next_happening()
            await client.guilds_known.wait()
            assert client.user is not None, "it is known with the servers"
            reading = _ChannelReading(
                intake, positions, MessageReader(client.user.id, self._options.mentions_only, self._options.agents)
            )
            await self._persist(intake, partial(self._handle, client, reading, happening))

    async def _handle(self, client: DiscordClient, reading: _ChannelReading, happening: Gap | ArrivedMessage) -> None:
        from hermes.gateway.platforms.discord_client import Gap

        if isinstance(happening, Gap):
            await self._catch_up(client, reading, happening)
        else:
            await self._take(reading, happening)

    async def _catch_up(self, client: DiscordClient, reading: _ChannelReading, gap: Gap) -> None:
        """Read the messages after each position. A new channel begins with the next message, unless it was created
        while no gateway ran."""

        positions = reading.positions
        for channel_id, missed_after in gap.missed_after.items():
            if positions.get(str(channel_id)) is None:
                await positions.advance(str(channel_id), str(missed_after), taken=False)
        latest = max((int(positions.get(place) or 0) for place in positions.places), default=None)
        listed = {str(channel.id): channel for channel in _channels(client)}
        unlisted = [place for place in positions.places if place not in listed]
        for place, channel in listed.items():
            last = channel.last_message_id
            if positions.get(place) is None:
                made_meanwhile = latest is not None and channel.id > latest
                # A live message that waits behind this may have moved `last` already.
                start = channel.id - 1 if made_meanwhile else min(last or channel.id, client.began_at)
                await positions.advance(place, str(start), taken=False)
            after = int(positions.get(place) or 0)
            if last is None or last > after:
                await self._read_place(reading, place, channel, client)
        for place in unlisted:
            await self._read_place(reading, place, None, client)
        await positions.flush()

    async def _read_place(
        self, reading: _ChannelReading, place: str, listed: Readable | None, client: DiscordClient
    ) -> None:
        """Read the messages of a channel after its position. Forget a channel that cannot be read any more."""
        import discord

        after = int(reading.positions.get(place) or 0)
        try:
            channel = listed or await self._find_channel(client, place)
            if channel is None or (isinstance(channel, discord.Thread) and channel.archived and self._is_old(after)):
                reading.positions.forget(place)
                return
            async for message in channel.history(limit=None, after=discord.Object(after), oldest_first=True):
                await self._take(reading, self._library.ArrivedMessage(message))
        except discord.NotFound:
            reading.positions.forget(place)
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # raised by the library for one message
            log.warning("channel %s holds a message that cannot be read: %s", place, type(error).__name__)
        except (discord.Forbidden, discord.InvalidData) as error:
            log.info("channel %s may not be read: %s", place, type(error).__name__)

    def _is_old(self, message_id: int) -> bool:
        from discord.utils import snowflake_time

        return snowflake_time(message_id).timestamp() < self._clock.now() - THREAD_LIFE_SECONDS

    async def _find_channel(self, client: DiscordClient, place: str) -> Readable | None:
        """Return a channel that the session does not list: a direct chat, an archived thread, or a channel of a server
        that is not available. Discord says which: a thread taken for a direct chat would be answered as one."""
        import discord

        if place in self._direct:
            return client.get_partial_messageable(int(place), type=discord.ChannelType.private)
        found = await client.fetch_channel(int(place))
        if isinstance(found, discord.DMChannel):
            self._direct.add(place)
        return found if isinstance(found, discord.abc.Messageable) else None

    async def _take(self, reading: _ChannelReading, said: ArrivedMessage) -> None:
        """Hand in one message. An unreadable message is logged and skipped: it would block all later ones."""
        message = said.message
        try:
            found = reading.reader.read(message, edited=said.edited)
        except Exception as error:  # noqa: BLE001 - whatever Discord sends, the next message must be reached
            log.warning("message %s cannot be read: %s", message.id, type(error).__name__)
            found = None
        if found is not None:
            if self._options.marks_late and not said.edited:
                age_seconds = self._clock.now() - message.created_at.timestamp()
                found = replace(found, text=mark_late(found.text, age_seconds))
            await reading.intake.receive(found)
        if not said.edited:
            await reading.positions.advance(str(message.channel.id), str(message.id), taken=found is not None)

    async def _persist(self, intake: Intake, work: Callable[[], Awaitable[T]]) -> T:
        """Retry until `work` succeeds: Discord, the network and the store come back."""
        import aiohttp
        from discord import DiscordException

        wait_seconds = MIN_RETRY_SECONDS
        while True:
            asked_seconds = 0.0
            try:
                return await work()
            except HermesError as error:
                reason = error.line()
            except (DiscordException, aiohttp.ClientError, OSError) as error:
                reason, asked_seconds = self._describe(error), float(getattr(error, "retry_after", 0.0))
            await self._report(intake, "failing", reason)
            await self._clock.sleep(max(wait_seconds, asked_seconds))
            wait_seconds = min(wait_seconds * 2, MAX_RETRY_SECONDS)

    async def _report(self, intake: Intake, state: str, detail: str) -> None:
        """Report a changed state. If the store cannot be written, it is reported at the next change."""
        if state == self._state:
            return
        try:
            await intake.report(NAME, state, detail)
        except HermesError as error:
            log.error("%s cannot be reported: %s", state, error.line())
            return
        self._state = state

    @asynccontextmanager
    async def _calling(self, chat: Chat) -> AsyncIterator[discord.PartialMessageable]:
        """Yield the channel of a chat, and translate the errors of calls to it."""
        import aiohttp
        from discord import DiscordException

        if self._client is None or not self._client.is_ready():
            raise SendLater("Discord is not connected", NOT_CONNECTED_WAIT_SECONDS)
        try:
            yield self._client.get_partial_messageable(int(chat.thread_id or chat.chat_id))
        except (DiscordException, aiohttp.ClientError, OSError) as error:
            raise self._translate(error) from None

    def _translate(self, error: Exception) -> SendLater | SendNever:
        """Return the gateway's exception for a failed call. Unknown errors are retried."""
        from discord import DiscordServerError, HTTPException, LoginFailure, RateLimited

        reason = self._describe(error)
        match error:
            case RateLimited():
                return SendLater(reason, error.retry_after)
            case LoginFailure():
                return SendLater(reason, REFUSED_TOKEN_WAIT_SECONDS)
            case HTTPException() if error.status == 401:  # the owner may mend it: no fault of the message
                return SendLater(reason, REFUSED_TOKEN_WAIT_SECONDS)
            case HTTPException() if error.code == UNKNOWN_MESSAGE_CODE:
                return MessageGone(reason)
            case HTTPException() if error.status == 429 or isinstance(error, DiscordServerError):
                return SendLater(reason)
            case HTTPException():
                return SendNever(reason)
            case _:
                return SendLater(reason)

    def _describe(self, error: BaseException) -> str:
        """Return an error as one line without the token."""
        line = f"{type(error).__name__}: {error}".replace("\n", " ")
        return line.replace(self._options.token, "(hidden)")


class _ChannelReading(Struct, frozen=True):
    """The gateway, positions and reader of one connection."""

    intake: Intake
    positions: ReadPositions
    reader: MessageReader


async def _is_set(event: asyncio.Event, within_seconds: float) -> bool:
    """Wait for an event; return False if it does not come within the time."""
    try:
        return await asyncio.wait_for(event.wait(), within_seconds)
    except TimeoutError:
        return False


def _channels(client: DiscordClient) -> Iterator[Listed]:
    """Yield the channels and threads that the session lists."""
    for guild in client.guilds:
        listed: list[Listed] = [*guild.text_channels, *guild.voice_channels, *guild.stage_channels, *guild.threads]
        yield from listed


def _fit(text: str) -> str:
    """Return the text in Discord's Markdown, or unchanged if that would be too long."""
    shown = render(text)
    return shown if shown.strip() and count_units(shown) <= MAX_MESSAGE_UNITS else text
