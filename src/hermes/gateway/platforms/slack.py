"""Slack: events come over a websocket (Socket Mode) and are acknowledged after the commit.

Slack repeats missed events only for a short time. So each channel and thread has a read position, and each new
connection first reads later messages over HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hermes.clock import Clock
from hermes.errors import HermesError, SettingsError
from hermes.gateway.platform import Chat, Intake, SendLater
from hermes.gateway.platforms.read_positions import ReadPositions
from hermes.gateway.platforms.set_up import SLACK, how_to_install
from hermes.gateway.platforms.slack_messages import (
    NAME,
    UNREADABLE,
    EventReader,
    code_of,
    describe,
    key_entry,
    key_of,
    retry_after,
    to_mrkdwn,
    translate,
)
from hermes.gateway.platforms.text import mark_late
from hermes.types import Json

if TYPE_CHECKING:
    from slack_sdk.socket_mode.aiohttp import SocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest
    from slack_sdk.web.async_client import AsyncWebClient

log = logging.getLogger("hermes.gateway.slack")

MAX_MESSAGE_UNITS = 3500
"""Slack recommends at most 4,000 characters; formatting adds some."""
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 60.0
CALL_TIMEOUT_SECONDS = 20
PING_SECONDS = 5.0
WATCH_SECONDS, SILENT_LOSS_SECONDS, LONG_LOSS_SECONDS = 5.0, 15.0, 60.0
"""Interval of checks; longest loss that is not reported, as Slack renews each connection every few hours; and the loss
after which we reconnect, because the library does not."""
MAX_WAITING_EVENTS = 10_000
"""Events that wait to be stored. Further ones are not acknowledged, so Slack sends them again."""
MAX_NAMES = 1000
PAGE_ITEMS = 200
MAX_HISTORY_PAGES = 100
THREAD_LIFE_SECONDS = 14 * 86_400
"""Threads that are silent for longer are not read after a start."""
CLOCK_DIFFERENCE_SECONDS = 600.0
"""How far this machine's clock may be ahead of Slack's."""
KINDS = "public_channel,private_channel,mpim,im"
T = TypeVar("T")


class SlackOptions(Struct, frozen=True):
    """Options of the bot. With `marks_late`, a message that waited while no gateway ran is marked."""

    bot_token: str
    app_token: str
    base_url: str
    mentions_only: bool = True
    agents: frozenset[str] = frozenset()
    """Ids of other bots whose messages in channels are accepted."""
    marks_late: bool = False


class Slack:
    """The Slack adapter of one bot in one workspace."""

    name = NAME
    longest_message = MAX_MESSAGE_UNITS

    def __init__(self, options: SlackOptions, clock: Clock) -> None:
        if not options.app_token:
            raise SettingsError(
                "`slack.bot_token` is set, but `slack.app_token` is not",
                hint="Make an app-level token (xapp-…) with the scope connections:write and set it; see docs/slack.md",
            )
        try:
            self._sockets = import_module("slack_sdk.socket_mode.aiohttp")
        except ModuleNotFoundError as error:
            raise SettingsError(
                f"`slack.bot_token` is set, but the package {error.name} is not installed",
                hint=f"Install it beside hermes: `{how_to_install(SLACK)}`",
            ) from None
        self._options = options
        self._clock = clock
        self._web = _make_web_client(options)
        self._socket: SocketModeClient | None = None
        self._names: OrderedDict[str, str] = OrderedDict()
        self._waiting: asyncio.Queue[SocketModeRequest | float] = asyncio.Queue()
        self._state = ""

    @property
    def can_edit(self) -> bool:
        """False if other agents listen: they would answer the beginning of a reply."""
        return not self._options.agents

    async def run(self, intake: Intake) -> None:
        """Receive until cancelled. A failure is reported when it begins and when it is over."""
        positions = ReadPositions(intake, lambda one, other: float(one) > float(other))
        await self._persist(intake, positions.load)
        known = await self._persist(intake, self._web.auth_test)
        reader = EventReader(str(known["user_id"]), self._options.mentions_only, self._name_of, self._options.agents)
        reading = _EventReading(intake, positions, reader)
        await self._persist(intake, self._connect)
        await self._report(intake, "ok", f"@{known['user']} in {known['team']}")
        watching = asyncio.create_task(self._watch(intake, f"@{known['user']} in {known['team']}"), name="slack state")
        try:
            while True:
                request = await self._waiting.get()
                await self._persist(intake, partial(self._handle, reading, request))
        finally:
            watching.cancel()
            await self._close_socket()

    async def send(self, chat: Chat, text: str, key: str = "") -> str:
        """Send one message. Slack stores the `key` as metadata, where `was_sent` finds it."""
        sent = await self._call(
            self._web.chat_postMessage(
                channel=chat.chat_id,
                text=to_mrkdwn(text),
                thread_ts=chat.thread_id,
                unfurl_links=False,
                unfurl_media=False,
                metadata=key_entry(key) if key else None,
            )
        )
        return str(sent["ts"])

    async def was_sent(self, chat: Chat, key: str, since: float) -> bool:
        """Search a channel or thread for a message with a key. False if it may not be read."""
        from slack_sdk.errors import SlackApiError

        async def look() -> list[Json]:
            try:
                return await self._history(chat.chat_id, chat.thread_id or "", str(since - CLOCK_DIFFERENCE_SECONDS))
            except SlackApiError as error:
                if code_of(error) in UNREADABLE:
                    return []
                raise

        return key in map(key_of, await self._call(look()))

    async def edit(self, chat: Chat, message_id: str, text: str) -> None:
        """Replace the text of a message we sent."""
        await self._call(self._web.chat_update(channel=chat.chat_id, ts=message_id, text=to_mrkdwn(text)))

    async def show_typing(self, chat: Chat) -> None:
        """Do nothing: Slack has no such sign for bots."""

    async def close(self) -> None:
        """Close the connections."""
        await self._close_socket()
        session = self._web.session
        if session is not None and not session.closed:
            await session.close()

    async def _close_socket(self) -> None:
        if self._socket is not None:
            socket, self._socket = self._socket, None
            await socket.close()  # type: ignore[no-untyped-call]
            await socket.aiohttp_client_session.close()

    async def _connect(self) -> None:
        """Open the websocket; the library keeps it open. Its own retries would hide a wrong token, so the token is
        checked first."""
        await self._close_socket()
        socket = self._sockets.SocketModeClient(
            self._options.app_token, log_of(), self._web, auto_reconnect_enabled=True, ping_interval=PING_SECONDS
        )
        socket.message_listeners.append(self._hear_hello)
        socket.socket_mode_request_listeners.append(self._hear)
        self._socket = socket
        socket.wss_uri = await socket.issue_new_wss_url()
        await asyncio.wait_for(socket.connect(), CALL_TIMEOUT_SECONDS)  # it retries its address for ever

    async def _watch(self, intake: Intake, told: str) -> None:
        """Report when the connection is lost and when it is back. Reconnect after a long loss: the library keeps an
        address that Slack accepts only for a moment."""
        lost_seconds = 0.0
        while True:
            await self._clock.sleep(WATCH_SECONDS)
            connected = self._socket is not None and await self._socket.is_connected()
            lost_seconds = 0.0 if connected else lost_seconds + WATCH_SECONDS
            if connected:
                await self._report(intake, "ok", told)
            elif lost_seconds >= SILENT_LOSS_SECONDS:
                await self._report(intake, "failing", "no connection to Slack")
            if lost_seconds >= LONG_LOSS_SECONDS:
                await self._persist(intake, self._connect)
                lost_seconds = 0.0

    # The library calls these in the order of what happens.

    async def _hear_hello(self, _socket: object, message: Json, _raw: object) -> None:
        """Queue the time at which a connection began: Slack may not repeat earlier messages."""
        if message.get("type") == "hello":
            self._waiting.put_nowait(self._clock.now())

    async def _hear(self, _socket: object, request: SocketModeRequest) -> None:
        if self._waiting.qsize() < MAX_WAITING_EVENTS:
            self._waiting.put_nowait(request)

    async def _handle(self, reading: _EventReading, request: SocketModeRequest | float) -> None:
        """Hand in one event, then acknowledge it; a number is the time at which a connection began."""
        if isinstance(request, float):
            await self._catch_up(reading, request)
            return
        if request.type == "events_api":
            await self._take(reading, request.payload.get("event") or {})
        if self._socket is not None:
            try:
                await self._socket.send_socket_mode_response({"envelope_id": request.envelope_id})
            except OSError as error:  # Slack sends it again, and the inbox ignores it
                log.debug("an event could not be acknowledged: %s", error)

    async def _take(self, reading: _EventReading, event: Json) -> None:
        """Hand in one message. An unreadable message is logged and skipped: it would block all later ones."""
        try:
            found = await reading.reader.read(event)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("an event cannot be read: %s", type(error).__name__)
            found = None
        edited = event.get("subtype") == "message_changed"
        if found is not None:
            if self._options.marks_late and not edited:
                found = replace(found, text=mark_late(found.text, self._clock.now() - float(event["ts"])))
            await reading.intake.receive(found)
        if event.get("type") == "message" and not edited and "ts" in event and "channel" in event:
            await reading.positions.advance(_place_of(event), str(event["ts"]), taken=found is not None)

    async def _catch_up(self, reading: _EventReading, began_at: float) -> None:
        """Read the messages after each position. A new channel is not read, unless it was created while no gateway ran:
        its earlier messages are not meant for us, and its later ones wait in the queue."""
        positions = reading.positions
        latest = max((float(positions.get(place) or 0) for place in positions.places), default=None)
        new = []
        for channel in await self._pages("users.conversations", "channels", {"types": KINDS}):
            place = str(channel["id"])
            if positions.get(place) is not None:
                continue
            if latest is not None and float(channel.get("created") or 0) > latest:
                await positions.advance(place, "0", taken=False)
            else:
                new.append(place)
        for place in positions.places:
            await self._read_place(reading, place)
        for place in new:
            await positions.advance(place, f"{began_at:.6f}", taken=False)
        await positions.flush()

    async def _read_place(self, reading: _EventReading, place: str) -> None:
        from slack_sdk.errors import SlackApiError

        channel, _, thread = place.partition("/")
        oldest = reading.positions.get(place) or "0"
        if thread and float(oldest) < self._clock.now() - THREAD_LIFE_SECONDS:
            reading.positions.forget(place)
            return
        begun: list[str] = []
        try:
            for event in await self._history(channel, thread, oldest):
                below = f"{channel}/{event['ts']}"
                if not thread and event.get("reply_count") and reading.positions.get(below) is None:
                    await reading.positions.advance(below, str(event["ts"]), taken=False)
                    begun.append(below)
                await self._take(reading, event)
            for below in begun:
                await self._read_place(reading, below)
        except SlackApiError as error:
            if code_of(error) not in UNREADABLE:
                raise
            log.info("%s may not be read: %s", place, code_of(error))

    async def _history(self, channel: str, thread: str, oldest: str) -> list[Json]:
        """Return the messages of a channel or thread after a time, in order."""
        asked = {"channel": channel, "oldest": oldest, "include_all_metadata": "true"}
        if thread:
            found = await self._pages("conversations.replies", "messages", {**asked, "ts": thread})
        else:
            found = await self._pages("conversations.history", "messages", asked)
        later = sorted((one for one in found if float(one["ts"]) > float(oldest)), key=lambda one: float(one["ts"]))
        return [{"type": "message", **one, "channel": channel} for one in later]

    async def _pages(self, method: str, field: str, asked: Mapping[str, str]) -> list[Json]:
        """Return a list, fetched page by page."""
        found: list[Json] = []
        params: dict[str, str | int] = {**asked, "limit": PAGE_ITEMS}
        for _ in range(MAX_HISTORY_PAGES):
            page = await self._page(method, params)
            found += page[field]
            params["cursor"] = str((page.get("response_metadata") or {}).get("next_cursor") or "")
            if not params["cursor"]:
                return found
        log.warning("%s: entries after the first %d are ignored", method, len(found))
        return found

    async def _page(self, method: str, params: Mapping[str, str | int]) -> Json:
        """Return one page, waiting as long as Slack asks, so that earlier pages need not be read again."""
        from slack_sdk.errors import SlackApiError

        while True:
            try:
                return await self._web.api_call(method, params=dict(params))
            except SlackApiError as error:
                asked_seconds = retry_after(error)
                if asked_seconds is None:
                    raise
                await self._clock.sleep(max(asked_seconds, MIN_RETRY_SECONDS))

    async def _name_of(self, user_id: str) -> str:
        """Return the name of a person, or their id if Slack does not give one."""
        from slack_sdk.errors import SlackApiError

        if user_id not in self._names:
            try:
                found = (await self._web.users_info(user=user_id))["user"]
            except SlackApiError as error:
                log.info("the name of %s is not known: %s", user_id, code_of(error))
                return user_id
            profile = found.get("profile") or {}
            names = (profile.get("display_name"), profile.get("real_name"), found.get("name"))
            self._names[user_id] = next((str(name) for name in names if name), user_id)
            if len(self._names) > MAX_NAMES:
                self._names.popitem(last=False)
        return self._names[user_id]

    async def _persist(self, intake: Intake, work: Callable[[], Awaitable[T]]) -> T:
        """Retry until `work` succeeds: Slack, the network and the store come back."""
        import aiohttp
        from slack_sdk.errors import SlackApiError

        wait_seconds = MIN_RETRY_SECONDS
        while True:
            asked_seconds = 0.0
            try:
                return await work()
            except HermesError as error:
                reason = error.line()
            except SlackApiError as error:
                reason, asked_seconds = self._describe(error), retry_after(error) or 0.0
            except (aiohttp.ClientError, OSError) as error:
                reason = self._describe(error)
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

    async def _call(self, call: Awaitable[Json]) -> Json:
        """Await a call and translate its errors."""
        import aiohttp
        from slack_sdk.errors import SlackApiError

        try:
            return await call
        except SlackApiError as error:
            raise translate(error, self._describe(error)) from None
        except (aiohttp.ClientError, OSError) as error:
            raise SendLater(self._describe(error)) from None

    def _describe(self, error: Exception) -> str:
        return describe(error, (self._options.bot_token, self._options.app_token))


class _EventReading(Struct, frozen=True):
    """The gateway, positions and reader of one connection."""

    intake: Intake
    positions: ReadPositions
    reader: EventReader


def log_of() -> logging.Logger:
    """Return the library's logger, muted: it logs each connection and tracebacks."""
    library = logging.getLogger("slack_sdk")
    library.setLevel(logging.CRITICAL)
    return library


def _make_web_client(options: SlackOptions) -> AsyncWebClient:
    from slack_sdk.web.async_client import AsyncWebClient

    base_url = f"{options.base_url.rstrip('/')}/"
    return AsyncWebClient(options.bot_token, base_url, timeout=CALL_TIMEOUT_SECONDS, logger=log_of())


def _place_of(event: Json) -> str:
    """Return the key of the read position of a channel or thread."""
    thread = event.get("thread_ts")
    return f"{event['channel']}/{thread}" if thread and thread != event["ts"] else str(event["channel"])
