"""A Discord on loopback: its HTTP API and its gateway websocket, with people who can be made to speak, and trouble.

    with DiscordServer() as discord:
        ann = discord.person("Ann")
        discord.say(ann.dm, "hello", ann)
        discord.until(lambda: discord.texts(ann.dm))

Refused as by Discord: wrong tokens, intents that are not granted, empty and long texts, unknown channels and messages.
A connection that is lost can be resumed, with what was said meanwhile, until `forget_sessions`.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from aiohttp import WSMsgType, web

from hermes.types import Json
from tests.gateway.web_server import WebServer

TOKEN = "MTIz.loopback.token-that-nobody-shall-ever-read"
BOT_ID = 900_000_000_000_000_001
MAX_MESSAGE_UNITS = 2000
MESSAGE_CONTENT = 1 << 15
LIMITED_MESSAGE_CONTENT = 1 << 19
"""The application flag of an enabled intent, for a bot in fewer than 100 servers."""
EPOCH_MS = 1_420_070_400_000
HEARTBEAT_MS = 300
APPLICATION: dict[str, Json] = {
    "name": "Hermes",
    "description": "",
    "flags": 0,
    "verify_key": "",
    "team": None,
    "bot_public": False,
    "bot_require_code_grant": False,
    "icon": None,
    "summary": "",
    "rpc_origins": [],
}


@dataclass(frozen=True)
class Channel:
    """A direct chat, a text channel, a voice channel or a thread."""

    id: int
    kind: Literal[0, 1, 2, 11]
    name: str = ""
    parent_id: int | None = None


@dataclass(frozen=True)
class Person:
    """A Discord user."""

    id: int
    name: str
    dm: Channel
    bot: bool = False

    def to_json(self) -> Json:
        return {
            "id": str(self.id),
            "username": self.name.lower(),
            "global_name": self.name,
            "discriminator": "0",
            "avatar": None,
            "bot": self.bot,
        }


@dataclass(frozen=True)
class Bot:
    """A bot with the token that it signs in with."""

    id: int
    name: str
    token: str

    def to_json(self) -> dict[str, Json]:
        named = {"username": self.name, "global_name": None, "discriminator": "0", "avatar": None}
        return {"id": str(self.id), "bot": True, **named}


@dataclass
class Session:
    """A gateway session with its sent events, for a resume."""

    id: str
    events: deque[Json] = field(default_factory=deque)
    socket: web.WebSocketResponse | None = None
    deflate: Any = None
    sequence: int = 0


@dataclass(frozen=True)
class Trouble:
    """A refusal of a call instead of its answer; `lost` hangs up after the effect."""

    method: str
    status: int
    body: Json
    lost: bool = False


class DiscordServer(WebServer):
    """The server. All of it may be used from any thread."""

    def __init__(self, *, intents: bool = True) -> None:
        super().__init__()
        self.on_call: Callable[[str, str], None] = lambda _method, _path: None
        self.after_call: Callable[[str, str], None] = lambda _method, _path: None
        """Called after the effect of a call, before its response."""
        self.grants_intents = intents
        self.bots = [Bot(BOT_ID, "hermes", TOKEN)]
        self.answers_heartbeats = True
        self.accepts_websockets = True
        self.identified = 0
        self.resumed = 0
        self._numbers = count(1)
        self._channels: dict[int, Channel] = {}
        self._messages: dict[int, list[dict[str, Json]]] = {}
        self._gone: set[int] = set()
        self._archived: set[int] = set()
        self.is_available = True
        """True if a new session gets the server's channels."""
        self._nonces: dict[tuple[int, int, str], Json] = {}
        self._sessions: dict[str, Session] = {}
        self._troubles: list[Trouble] = []
        self.guild_id = self._id()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/v10"

    # What people do.

    def person(self, name: str, *, user_id: int | None = None, bot: bool = False) -> Person:
        """Create a person who can write to the bot."""
        dm = Channel(self._id(), 1)
        self._channels[dm.id] = dm
        return Person(user_id or self._id(), name, dm, bot)

    def add_bot(self, name: str) -> Bot:
        """Add a bot to the same server."""
        made = Bot(self._id(), name, f"MTIz.{name}.another-token")
        self.bots.append(made)
        return made

    def channel(self, name: str, kind: Literal[0, 2] = 0) -> Channel:
        """Create a text or voice channel of the server, with the bot in it."""
        made = Channel(self._id(), kind, name)
        self._channels[made.id] = made
        self.emit("CHANNEL_CREATE", self._channel_json(made))
        return made

    def thread(self, parent: Channel, name: str) -> Channel:
        """Create a thread in a channel."""
        made = Channel(self._id(), 11, name, parent.id)
        self._channels[made.id] = made
        self.emit("THREAD_CREATE", self._channel_json(made))
        return made

    def say(self, where: Channel, text: str, who: Person, **more: Json) -> int:
        """Send a message of a person; return its id."""
        message = self._message(where, text, **{"author": who.to_json(), **more})
        self.emit("MESSAGE_CREATE", message)
        return int(message["id"])

    def edit(self, where: Channel, message_id: int, text: str) -> None:
        """Edit a person's message."""
        with self.changed:
            [message] = [one for one in self._messages[where.id] if one["id"] == str(message_id)]
            message |= {"content": text, "edited_timestamp": _time(self._id())}
        self.emit("MESSAGE_UPDATE", message)

    def remove(self, where: Channel) -> None:
        """Delete the channel."""
        with self.changed:
            self._gone.add(where.id)

    def archive(self, thread: Channel) -> None:
        """Archive a thread: it is not listed any more."""
        self._archived.add(thread.id)
        self.emit("THREAD_UPDATE", self._channel_json(thread))

    # What goes wrong.

    def refuse(self, method: str, status: int, *, times: int = 1, lost: bool = False, **body: Json) -> None:
        """Refuse the next calls of an HTTP method; with `lost` hang up after the effect instead."""
        with self.changed:
            self._troubles += [Trouble(method, status, body, lost)] * times

    def forget_sessions(self) -> None:
        """End all sessions: later events are not repeated to new ones."""
        with self.changed:
            self._sessions.clear()

    def forget_messages(self) -> None:
        """Drop stored messages and events, for tests that measure memory."""
        with self.changed:
            self.calls.clear()
            self._messages.clear()
            self._nonces.clear()
            for session in self._sessions.values():
                session.events.clear()

    # What can be seen.

    def messages_of(self, channel_id: int) -> list[tuple[str, str]]:
        """Return author and text of all messages of a channel."""
        return [(str(one["author"]["id"]), str(one["content"])) for one in self._messages.get(channel_id, [])]

    def texts(self, where: Channel, bot_id: int = BOT_ID) -> list[str]:
        """Return the present texts of a bot's messages in a channel, in order."""
        with self.changed:
            said = self._messages.get(where.id, [])
            return [str(one["content"]) for one in said if one["author"]["id"] == str(bot_id)]

    def connected(self) -> bool:
        """Return True while the bot has a websocket."""
        with self.changed:
            return any(session.socket is not None for session in self._sessions.values())

    # The server.

    def make_app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/ws", self._gateway)
        app.router.add_route("*", "/api/v10/{path:.*}", self._answer)
        return app

    def _id(self) -> int:
        """Return a snowflake of now: later ones are larger."""
        return ((time.time_ns() // 1_000_000 - EPOCH_MS) << 22) + next(self._numbers) % (1 << 22)

    def _message(self, where: Channel, text: str, author: Json, **more: Json) -> dict[str, Json]:
        with self.changed:
            number = self._id()
            made: dict[str, Json] = {
                "id": str(number),
                "channel_id": str(where.id),
                "author": author,
                "content": text,
                "timestamp": _time(number),
                "edited_timestamp": None,
                "tts": False,
                "mention_everyone": False,
                "mentions": [],
                "mention_roles": [],
                "attachments": [],
                "embeds": [],
                "pinned": False,
                "type": 0,
                **({} if where.kind == 1 else {"guild_id": str(self.guild_id)}),
                **more,
            }
            made["mentions"] = more.get("mentions") or [one.to_json() for one in self.bots if f"<@{one.id}>" in text]
            self._messages.setdefault(where.id, []).append(made)
            self.changed.notify_all()
        return made

    def _channel_json(self, channel: Channel) -> dict[str, Json]:
        said = self._messages.get(channel.id, [])
        made: dict[str, Json] = {
            "id": str(channel.id),
            "type": channel.kind,
            "name": channel.name,
            "guild_id": str(self.guild_id),
            "last_message_id": said[-1]["id"] if said else None,
            "position": 0,
            "permission_overwrites": [],
            **({"bitrate": 64000, "user_limit": 0} if channel.kind == 2 else {}),
        }
        if channel.parent_id is not None:
            made |= {
                "parent_id": str(channel.parent_id),
                "owner_id": str(BOT_ID),
                "message_count": len(said),
                "member_count": 1,
                "thread_metadata": {
                    "archived": channel.id in self._archived,
                    "auto_archive_duration": 1440,
                    "archive_timestamp": _time(channel.id),
                    "locked": False,
                },
            }
        return made

    def _guild_json(self) -> Json:
        kinds: dict[int, list[Json]] = {0: [], 2: [], 11: []}
        for channel in self._channels.values():
            if channel.kind in kinds and channel.id not in self._gone | self._archived:
                kinds[channel.kind].append(self._channel_json(channel))
        everyone = {"id": str(self.guild_id), "name": "@everyone", "permissions": str(1 << 10 | 1 << 16), "position": 0}
        everyone |= {"color": 0, "hoist": False, "managed": False, "mentionable": False}
        return {
            "id": str(self.guild_id),
            "name": "Guild",
            "owner_id": "1",
            "roles": [everyone],
            "emojis": [],
            "features": [],
            "channels": kinds[0] + kinds[2],
            "threads": kinds[11],
            "members": [
                {
                    "user": self.bots[0].to_json(),
                    "roles": [],
                    "joined_at": _time(0),
                    "deaf": False,
                    "mute": False,
                    "flags": 0,
                }
            ],
            "member_count": 2,
            "large": False,
            "unavailable": False,
            "voice_states": [],
            "presences": [],
            "stage_instances": [],
            "preferred_locale": "en-US",
        }

    # The websocket.

    def emit(self, kind: str, data: Json) -> None:
        """Send an event to every session, connected or not."""
        self.do(self._emit_here(kind, data))

    async def _emit_here(self, kind: str, data: Json) -> None:
        for session in list(self._sessions.values()):
            await self._send_event(session, kind, data)
        with self.changed:
            self.changed.notify_all()

    async def _send_event(self, session: Session, kind: str, data: Json) -> None:
        session.sequence += 1
        event = {"op": 0, "t": kind, "s": session.sequence, "d": json.loads(json.dumps(data))}
        session.events.append(event)
        await self._send(session, event)

    async def _send(self, session: Session, payload: Json) -> None:
        if session.socket is None or session.socket.closed:
            return
        data = json.dumps(payload).encode()
        try:
            if session.deflate is None:
                await session.socket.send_str(data.decode())
            else:
                await session.socket.send_bytes(
                    session.deflate.compress(data) + session.deflate.flush(zlib.Z_SYNC_FLUSH)
                )
        except (ConnectionError, RuntimeError):
            session.socket = None

    async def _gateway(self, request: web.Request) -> web.WebSocketResponse:
        if not self.accepts_websockets:
            raise web.HTTPServiceUnavailable
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        compressed = request.query.get("compress") == "zlib-stream"
        session = Session("", socket=socket, deflate=zlib.compressobj() if compressed else None)
        await self._send(session, {"op": 10, "d": {"heartbeat_interval": HEARTBEAT_MS}, "s": None, "t": None})
        async for message in socket:
            if message.type != WSMsgType.TEXT:
                break
            session = await self._hear(session, json.loads(message.data))
        if session.socket is socket:
            session.socket = None
        return socket

    async def _hear(self, session: Session, payload: Json) -> Session:
        match payload["op"]:
            case 1 if self.answers_heartbeats:
                await self._send(session, {"op": 11, "d": None, "s": None, "t": None})
            case 2:
                await self._identify(session, payload["d"])
            case 6:
                return await self._resume(session, payload["d"])
        return session

    async def _identify(self, session: Session, given: Json) -> None:
        assert session.socket is not None
        bot = next((one for one in self.bots if one.token == given["token"]), None)
        if bot is None:
            await session.socket.close(code=4004, message=b"Authentication failed.")
            return
        if given["intents"] & MESSAGE_CONTENT and not self.grants_intents:
            await session.socket.close(code=4014, message=b"Disallowed intent(s).")
            return
        session.id = f"session-{next(self._numbers)}"
        ready = {
            "v": 10,
            "user": bot.to_json(),
            "guilds": [{"id": str(self.guild_id), "unavailable": True}],
            "session_id": session.id,
            "resume_gateway_url": f"ws://127.0.0.1:{self.port}/ws",
            "application": {"id": str(bot.id), "flags": 0},
        }
        with self.changed:
            self._sessions[session.id] = session
            self.identified += 1
        await self._send_event(session, "READY", ready)
        if self.is_available:
            await self._send_event(session, "GUILD_CREATE", self._guild_json())
        with self.changed:
            self.changed.notify_all()

    async def _resume(self, fresh: Session, given: Json) -> Session:
        known = self._sessions.get(given["session_id"])
        if known is None or all(one.token != given["token"] for one in self.bots):
            await self._send(fresh, {"op": 9, "d": False, "s": None, "t": None})
            return fresh
        known.socket, known.deflate = fresh.socket, fresh.deflate
        for event in [one for one in known.events if one["s"] > given["seq"]]:
            await self._send(known, event)
        with self.changed:
            self.resumed += 1
            self.changed.notify_all()
        await self._send_event(known, "RESUMED", {})
        return known

    # HTTP.

    async def _answer(self, request: web.Request) -> web.Response:
        path, method = request.match_info["path"], request.method
        self.on_call(method, path)
        with self.changed:
            self.calls.append((method, path))
            trouble = next((one for one in self._troubles if one.method == method), None)
            if trouble is not None:
                self._troubles.remove(trouble)
        bot = next((one for one in self.bots if request.headers.get("Authorization") == f"Bot {one.token}"), None)
        if bot is None:
            return _refused(401, 0, "401: Unauthorized")
        if trouble is not None and not trouble.lost:
            headers = {"Retry-After": str(trouble.body["retry_after"])} if "retry_after" in trouble.body else {}
            return _json(trouble.body, status=trouble.status, headers=headers)
        found = await self._carry_out(method, path.split("/"), request, bot)
        with self.changed:
            self.changed.notify_all()
        self.after_call(method, path)
        if trouble is not None and request.transport is not None:
            request.transport.abort()
        return found

    async def _carry_out(self, method: str, path: list[str], request: web.Request, bot: Bot) -> web.Response:
        match method, path:
            case "GET", ["users", "@me"]:
                return _json(bot.to_json())
            case "GET", ["oauth2", "applications", "@me"]:
                flags = LIMITED_MESSAGE_CONTENT if self.grants_intents else 0
                return _json({**bot.to_json(), **APPLICATION, "flags": flags, "owner": bot.to_json()})
            case "GET", ["gateway"]:
                return _json({"url": f"ws://127.0.0.1:{self.port}/ws"})
            case _, ["channels", channel_id, *rest]:
                channel = self._channels.get(int(channel_id))
                if channel is None or channel.id in self._gone:
                    return _refused(404, 10003, "Unknown Channel")
                return await self._in_channel(method, channel, rest, request, bot)
        return _refused(404, 0, "404: Not Found")

    async def _in_channel(
        self, method: str, channel: Channel, path: list[str], request: web.Request, bot: Bot
    ) -> web.Response:
        match method, path:
            case "GET", []:
                return _json(self._channel_json(channel))
            case "POST", ["typing"]:
                return web.Response(status=204)
            case "GET", ["messages"]:
                after, limit = int(request.query.get("after", 0)), int(request.query.get("limit", 50))
                with self.changed:
                    later = [one for one in self._messages.get(channel.id, []) if int(one["id"]) > after]
                return _json(later[:limit][::-1])
            case "POST", ["messages"]:
                given = await request.json()
                return await self._post(channel, given, bot)
            case "PATCH", ["messages", message_id]:
                given = await request.json()
                return await self._patch(channel, message_id, given)
        return _refused(404, 0, "404: Not Found")

    async def _post(self, channel: Channel, given: Json, bot: Bot) -> web.Response:
        if (wrong := _check_text(given.get("content", ""))) is not None:
            return wrong
        nonce = (channel.id, bot.id, str(given.get("nonce")))
        if given.get("enforce_nonce") and nonce in self._nonces:
            return _json(self._nonces[nonce])
        made = self._message(channel, given["content"], bot.to_json())
        self._nonces[nonce] = made
        await self._emit_here("MESSAGE_CREATE", made)
        return _json(made)

    async def _patch(self, channel: Channel, message_id: str, given: Json) -> web.Response:
        if (wrong := _check_text(given.get("content", ""))) is not None:
            return wrong
        with self.changed:
            message = next((one for one in self._messages.get(channel.id, []) if one["id"] == message_id), None)
            if message is None:
                return _refused(404, 10008, "Unknown Message")
            message |= {"content": given["content"], "edited_timestamp": _time(self._id())}
        await self._emit_here("MESSAGE_UPDATE", message)
        return _json(message)

    def delete_message(self, where: Channel, text: str) -> None:
        """Delete the bot's message with this text."""
        with self.changed:
            self._messages[where.id] = [one for one in self._messages[where.id] if one["content"] != text]


def _json(body: Json, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return a JSON response with exactly the header that Discord sends: the library compares it."""
    made = {"Content-Type": "application/json", "Via": "1.1 loopback", **(headers or {})}
    return web.Response(body=json.dumps(body).encode(), status=status, headers=made)


def _time(snowflake: int) -> str:
    seconds = ((snowflake >> 22) + EPOCH_MS) / 1000
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}000+00:00"


def _refused(status: int, code: int, message: str) -> web.Response:
    return _json({"message": message, "code": code}, status=status)


def _check_text(text: str) -> web.Response | None:
    if not text.strip():
        return _refused(400, 50006, "Cannot send an empty message")
    if len(text.encode("utf-16-le")) // 2 > MAX_MESSAGE_UNITS:
        return _refused(400, 50035, "Invalid Form Body: content: Must be 2000 or fewer in length.")
    return None
