"""A Slack on loopback: its Web API and Socket Mode, with people who can be made to speak, and trouble.

    with SlackServer() as slack:
        ann = slack.person("Ann")
        slack.say(ann.dm, "hello", ann)
        slack.until(lambda: slack.texts(ann.dm))

Refused as by Slack: wrong tokens, unknown channels and messages, empty texts. An event is sent again until it is
acknowledged, while there is a connection; `redeliver` sends all of that at once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from aiohttp import WSMsgType, web

from hermes.types import Json
from tests.gateway.web_server import WebServer

BOT_TOKEN = "xoxb-loopback-token-that-nobody-shall-ever-read"
APP_TOKEN = "xapp-loopback-token-that-nobody-shall-ever-read"
BOT_USER, BOT_ID = "UBOT00001", "BBOT00001"
SCOPES = (
    "app_mentions:read", "channels:history", "channels:read", "chat:write", "groups:history", "groups:read",
    "im:history", "im:read", "im:write", "mpim:history", "mpim:read", "users:read",
)  # fmt: skip
PAGE_MESSAGES = 50
"""Pages are shorter than requested, as Slack's may be."""


@dataclass(frozen=True)
class Channel:
    """A direct chat or a channel."""

    id: str
    created: int

    @property
    def kind(self) -> str:
        return "im" if self.id.startswith("D") else "channel"


@dataclass(frozen=True)
class Person:
    """A Slack user."""

    id: str
    name: str
    dm: Channel


@dataclass(frozen=True)
class Bot:
    """The bot of an app, with its tokens."""

    user_id: str
    bot_id: str
    name: str
    token: str
    app_token: str


@dataclass(frozen=True)
class Trouble:
    """An error instead of a response."""

    method: str
    error: str
    status: int = 200
    retry_after: int = 0
    text: str | None = None
    """The whole response, in place of Slack's: it comes from a proxy."""
    content_type: str = "text/html"


class SlackServer(WebServer):
    """The server. All of it may be used from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self.on_call: Callable[[str], None] = lambda _: None
        self.after_call: Callable[[str], None] = lambda _: None
        """Called after the effect of a call, before its response."""
        self.connections = 0
        self.answers_pings = True
        self.accepts_address = True
        """True if addresses that are issued from now on lead to a websocket."""
        self.scopes: tuple[str, ...] = SCOPES
        self.acknowledged: list[str] = []
        self.bots = [Bot(BOT_USER, BOT_ID, "hermes", BOT_TOKEN, APP_TOKEN)]
        self._numbers = count(1)
        self._clock = time.time()
        self._channels: dict[str, Channel] = {}
        self._people: dict[str, Person] = {}
        self._messages: dict[str, list[dict[str, Json]]] = {}
        self._sockets: dict[str, list[web.WebSocketResponse]] = {}
        self._unacknowledged: dict[str, Json] = {}
        self._troubles: list[Trouble] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def make_app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/link", self._socket_mode)
        app.router.add_route("*", "/api/{method}", self._answer)
        return app

    # What people do.

    def person(self, name: str, *, user_id: str | None = None) -> Person:
        """Create a person who can write to the bot."""
        number = next(self._numbers)
        dm = Channel(f"D{number:08}", int(time.time()))
        made = Person(user_id or f"U{number:08}", name, dm)
        self._channels[dm.id], self._people[made.id] = dm, made
        return made

    def add_bot(self, name: str) -> Bot:
        """Add an app to the same workspace."""
        number = next(self._numbers)
        made = Bot(f"UBOT{number:05}", f"BBOT{number:05}", name, f"xoxb-another-{name}", f"xapp-another-{name}")
        self.bots.append(made)
        return made

    def channel(self) -> Channel:
        """Create a channel with the bot in it."""
        made = Channel(f"C{next(self._numbers):08}", int(time.time()))
        self._channels[made.id] = made
        return made

    def say(self, where: Channel, text: str, who: Person, **more: Json) -> str:
        """Send a message of a person; return its time stamp."""
        message = self._keep(where, {"user": who.id, "text": text, **more})
        self.emit({**message, "channel": where.id, "channel_type": where.kind})
        return str(message["ts"])

    def edit(self, where: Channel, ts: str, text: str) -> None:
        """Edit a person's message."""
        with self.changed:
            [message] = [one for one in self._messages[where.id] if one["ts"] == ts]
            before = dict(message)
            message |= {"text": text, "edited": {"user": message["user"], "ts": self._ts()}}
        changed = {"type": "message", "subtype": "message_changed", "message": message, "previous_message": before}
        self.emit({**changed, "channel": where.id, "channel_type": where.kind, "ts": self._ts()})

    def remove(self, where: Channel) -> None:
        """Delete the channel."""
        del self._channels[where.id]

    def emit(self, event: Json) -> None:
        """Send an event to all connections."""
        self.do(self._emit(event))

    async def _emit(self, event: Json) -> None:
        envelope_id = f"envelope-{next(self._numbers)}"
        body = {"type": "event_callback", "event": event, "event_id": f"Ev{envelope_id}"}
        envelope = {"type": "events_api", "envelope_id": envelope_id, "payload": body, "retry_attempt": 0}
        if any(self._sockets.values()):
            self._unacknowledged[envelope_id] = envelope
            await self._send(envelope)

    def is_connected(self) -> bool:
        """Return True while a bot has a websocket."""
        return any(self._sockets.values())

    def redeliver(self) -> None:
        """Send all unacknowledged events again."""

        async def send() -> None:
            for envelope in list(self._unacknowledged.values()):
                await self._send({**envelope, "retry_attempt": 1, "retry_reason": "timeout"})

        self.do(send())

    def ask_to_reconnect(self) -> None:
        """Tell the bot that its connection ends soon, as Slack does every few hours."""
        self.do(self._send({"type": "disconnect", "reason": "refresh_requested"}))

    async def _send(self, message: Json) -> None:
        for socket in [sockets[-1] for sockets in self._sockets.values() if sockets]:
            with suppress(ConnectionError):  # the bot was killed
                await socket.send_str(json.dumps(message))

    # What goes wrong.

    def refuse(self, method: str, error: str, *, times: int = 1, **more: Any) -> None:
        """Refuse the next calls of a method; see Trouble."""
        with self.changed:
            self._troubles += [Trouble(method, error, **more)] * times

    def forget_messages(self) -> None:
        """Drop stored messages and events, for tests that measure memory."""
        with self.changed:
            self.calls.clear()
            self.acknowledged.clear()
            self._messages.clear()
            self._unacknowledged.clear()

    # What can be seen.

    def messages_of(self, channel_id: str) -> list[tuple[str, str]]:
        """Return author and text of all messages of a channel."""
        return [(str(one["user"]), str(one["text"])) for one in self._messages.get(channel_id, [])]

    def texts(self, where: Channel, thread: str | None = None, user_id: str = BOT_USER) -> list[str]:
        """Return the present texts of a bot's messages in a channel or thread, in order."""
        with self.changed:
            mine = [one for one in self._messages.get(where.id, []) if one.get("user") == user_id]
            return [str(one["text"]) for one in mine if one.get("thread_ts") == thread]

    # The server.

    def _ts(self) -> str:
        self._clock = max(self._clock + 0.000002, time.time())
        return f"{self._clock:.6f}"

    def _keep(self, where: Channel, message: dict[str, Json]) -> dict[str, Json]:
        with self.changed:
            made = {"type": "message", "ts": self._ts(), **message}
            self._messages.setdefault(where.id, []).append(made)
            self.changed.notify_all()
        return made

    async def _socket_mode(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        mine = self._sockets.setdefault(request.query["of"], [])
        mine.append(socket)
        self.connections += 1
        await socket.send_str(json.dumps({"type": "hello", "num_connections": 1}))
        async for message in socket:
            if message.type == WSMsgType.PING:
                if self.answers_pings:
                    await socket.pong(message.data)
            elif message.type == WSMsgType.TEXT:
                self._acknowledge(json.loads(message.data)["envelope_id"])
        mine.remove(socket)
        return socket

    def _acknowledge(self, envelope_id: str) -> None:
        with self.changed:
            self._unacknowledged.pop(envelope_id, None)
            self.acknowledged.append(envelope_id)
            self.changed.notify_all()

    async def _answer(self, request: web.Request) -> web.Response:
        method, given = request.match_info["method"], {**request.query, **await _body_of(request)}
        self.on_call(method)
        with self.changed:
            self.calls.append((request.method, method))
            trouble = next((one for one in self._troubles if one.method == method), None)
            if trouble is not None:
                self._troubles.remove(trouble)
        given_token = (request.headers.get("Authorization") or "").removeprefix("Bearer ")
        opens = method == "apps.connections.open"
        bot = next((one for one in self.bots if given_token == (one.app_token if opens else one.token)), None)
        if bot is None:
            return _json({"ok": False, "error": "invalid_auth"})
        if trouble is not None:
            headers = {"Retry-After": str(trouble.retry_after)} if trouble.retry_after else {}
            if trouble.text is not None:
                return web.Response(text=trouble.text, status=trouble.status, content_type=trouble.content_type)
            return _json({"ok": False, "error": trouble.error}, trouble.status, headers)
        run = getattr(self, f"_{method.replace('.', '_').lower()}", None)
        found = {"error": "unknown_method"} if run is None else run({**given, "bot": bot})
        if "event" in found:
            await self._emit(found.pop("event"))
        with self.changed:
            self.changed.notify_all()
        self.after_call(method)
        return _json({"ok": "error" not in found, **found}, headers={"X-OAuth-Scopes": ",".join(self.scopes)})

    def _auth_test(self, given: Json) -> Json:
        bot = given["bot"]
        return {"user_id": bot.user_id, "bot_id": bot.bot_id, "user": bot.name, "team": "Loopback", "team_id": "T1"}

    def _apps_connections_open(self, given: Json) -> Json:
        path = "link" if self.accepts_address else "expired"
        return {"url": f"ws://127.0.0.1:{self.port}/{path}?of={given['bot'].user_id}"}

    def _users_info(self, given: Json) -> Json:
        person = self._people.get(given["user"])
        if person is None:
            return {"error": "user_not_found"}
        return {"user": {"id": person.id, "name": person.name.lower(), "profile": {"display_name": person.name}}}

    def _users_conversations(self, _: Json) -> Json:
        return {"channels": [{"id": one.id, "created": one.created} for one in self._channels.values()]}

    def _conversations_history(self, given: Json) -> Json:
        return self._page(given, lambda one: one.get("thread_ts") in (None, one["ts"]))

    def _conversations_replies(self, given: Json) -> Json:
        return self._page(given, lambda one: given["ts"] in (one["ts"], one.get("thread_ts")))

    def _page(self, given: Json, belongs: Callable[[Json], bool]) -> Json:
        if given["channel"] not in self._channels:
            return {"error": "channel_not_found"}
        later = [one for one in self._messages.get(given["channel"], []) if float(one["ts"]) > float(given["oldest"])]
        found = [self._with_replies(given["channel"], one) for one in later if belongs(one)][::-1]
        if given.get("include_all_metadata") != "true":
            found = [{name: one[name] for name in one if name != "metadata"} for one in found]
        start = int(given.get("cursor") or 0)
        end = start + PAGE_MESSAGES
        return {
            "messages": found[start:end],
            "response_metadata": {"next_cursor": str(end) if end < len(found) else ""},
        }

    def _with_replies(self, channel: str, message: Json) -> Json:
        """Return a message as in Slack's history: with the number of its replies."""
        below = [one for one in self._messages[channel] if one.get("thread_ts") == message["ts"] != one["ts"]]
        return {**message, "thread_ts": message["ts"], "reply_count": len(below)} if below else message

    def _chat_postmessage(self, given: Json) -> Json:
        if given["channel"] not in self._channels:
            return {"error": "channel_not_found"}
        if not given.get("text", "").strip():
            return {"error": "no_text"}
        more = {"thread_ts": given["thread_ts"]} if given.get("thread_ts") else {}
        where, bot = self._channels[given["channel"]], given["bot"]
        more |= {"metadata": given["metadata"]} if given.get("metadata") else {}
        said = {"user": bot.user_id, "bot_id": bot.bot_id, "username": bot.name, "text": given["text"], **more}
        made = self._keep(where, said)
        event = {**made, "channel": where.id, "channel_type": where.kind}
        return {"ts": made["ts"], "channel": where.id, "event": event}

    def _chat_update(self, given: Json) -> Json:
        with self.changed:
            found = [one for one in self._messages.get(given["channel"], []) if one["ts"] == given["ts"]]
            if not found:
                return {"error": "message_not_found"}
            before = dict(found[0])
            found[0] |= {"text": given["text"], "edited": {"user": given["bot"].user_id, "ts": self._ts()}}
        where = self._channels[given["channel"]]
        event = {"type": "message", "subtype": "message_changed", "message": found[0], "previous_message": before}
        return {
            "ts": given["ts"],
            "event": {**event, "channel": where.id, "channel_type": where.kind, "ts": self._ts()},
        }

    def delete_message(self, where: Channel, text: str) -> None:
        """Delete the bot's message with this text."""
        with self.changed:
            self._messages[where.id] = [one for one in self._messages[where.id] if one["text"] != text]


async def _body_of(request: web.Request) -> Json:
    if request.content_type == "application/json":
        return await request.json()
    return dict(await request.post())


def _json(body: Json, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response(body, status=status, headers=headers)
