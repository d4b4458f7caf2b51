"""A Bot API server on loopback: Telegram's protocol over HTTP, with people who can be made to speak, and trouble.

    with BotApi() as api:
        ann = api.person("Ann")
        api.say(ann.dm, "hello", ann)            # by polling or by the webhook that the bot has set
        api.until(lambda: api.texts(ann.dm.id))   # what the bot answered, as it reads now

What real Telegram refuses is refused here, with its words: empty and long texts, unknown chats, spans out of bounds,
edits that change nothing, polling while a webhook is set. An update is sent again until it is confirmed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, ClassVar, Literal, Self, TypeVar
from urllib.parse import parse_qsl

import httpx

from hermes.types import Json
from tests.plain_http import PLAIN

TOKEN = "4711:AAH-loopback_token-that-nobody-shall-ever-read"
USERNAME = "hermes_test_bot"
BOT_ID = 4711
MAX_MESSAGE_UNITS = 4096
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A chat, or a topic of one."""

    id: int
    type: Literal["private", "group", "supergroup", "channel"]
    title: str = ""
    topic: int | None = None

    def to_json(self) -> Json:
        named = {"first_name": self.title} if self.type == "private" else {"title": self.title}
        return {"id": self.id, "type": self.type, **named}


@dataclass(frozen=True)
class Person:
    """A Telegram user."""

    id: int
    name: str

    @property
    def dm(self) -> Place:
        return Place(self.id, "private", self.name)

    def to_json(self) -> Json:
        return {"id": self.id, "is_bot": False, "first_name": self.name, "username": f"{self.name.lower()}_{self.id}"}


@dataclass
class Sent:
    """A message of the bot with its present text; `texts` has all its texts."""

    id: int
    chat_id: int
    topic: int | None
    texts: list[str]
    entities: Json

    @property
    def text(self) -> str:
        return self.texts[-1]


@dataclass(frozen=True)
class Call:
    """One call of the bot."""

    method: str
    given: dict[str, Json]
    at: float


@dataclass(frozen=True)
class Trouble:
    """A fault instead of a response. `lost` hangs up without an effect, `unheard` after the effect."""

    method: str
    kind: Literal["refused", "lost", "unheard"]
    status: int = 0
    description: str = ""
    parameters: Json = None


class Refusal(Exception):
    """An error response."""

    def __init__(self, status: int, description: str, parameters: Json = None) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.parameters = parameters


def units(text: str) -> int:
    """Return the length in UTF-16 units, as Telegram counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@dataclass
class BotApi:
    """The server. All of it may be used from any thread."""

    port: int = 0
    calls: list[Call] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    confirmed: set[int] = field(default_factory=set)
    on_call: Callable[[Call], None] = lambda _: None
    """Called with every call before its effect."""
    webhook: dict[str, Json] = field(default_factory=dict)
    _updates: dict[int, Json] = field(default_factory=dict)
    _chats: set[int] = field(default_factory=set)
    _moved: dict[int, int] = field(default_factory=dict)
    _troubles: list[Trouble] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1000))
    _closing: bool = False

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = _Server(("127.0.0.1", self.port), handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # What people do.

    def person(self, name: str) -> Person:
        """Create a person who has opened a chat with the bot."""
        made = Person(next(self._numbers), name)
        self._chats.add(made.id)
        return made

    def group(self, title: str, *, topic: int | None = None) -> Place:
        """Create a group with the bot in it."""
        made = Place(-1_000_000 - next(self._numbers), "supergroup", title, topic)
        self._chats.add(made.id)
        return made

    def small_group(self, title: str) -> Place:
        """Create a basic group, which may become a supergroup."""
        made = Place(-next(self._numbers), "group", title)
        self._chats.add(made.id)
        return made

    def upgrade(self, group: Place) -> Place:
        """Turn a group into a supergroup. The bot learns of it by `move_updates`, or when it writes to the old id."""
        made = self.group(group.title)
        with self._changed:
            self._chats.discard(group.id)
            self._moved[group.id] = made.id
        return made

    def move_updates(self, old: Place, new: Place) -> tuple[Json, Json]:
        """Return Telegram's service messages about a move: at the end of the old group and at the beginning of the
        new."""
        nobody = Person(1087968824, "Group")
        return (
            {"message": self.message(old, nobody, migrate_to_chat_id=new.id)},
            {"message": self.message(new, nobody, migrate_from_chat_id=old.id)},
        )

    def say(self, place: Place, text: str, who: Person, **more: Json) -> int:
        """Send a message of a person; return its number."""
        message = self.message(place, who, text=text, **more)
        self.push({"message": message})
        return int(message["message_id"])

    def message(self, place: Place, who: Person, **more: Json) -> dict[str, Json]:
        """Return a message as Telegram describes it."""
        made = {"message_id": next(self._numbers), "date": int(time.time()), "chat": place.to_json()}
        if place.topic is not None:
            made |= {"message_thread_id": place.topic, "is_topic_message": True}
        return {**made, "from": who.to_json(), **more}

    def push(self, update: Json) -> int:
        """Queue an update; return its number."""
        with self._changed:
            number = next(self._numbers)
            self._updates[number] = {"update_id": number, **update} if isinstance(update, dict) else update
            self._changed.notify_all()
        return number

    def leave(self, chat_id: int) -> None:
        """Remove the bot from a chat."""
        self._chats.discard(chat_id)

    def post(self, number: int, *, secret: str | None = None) -> int:
        """Post an update to the webhook, as Telegram does; return the status."""
        return self.post_raw(json.dumps(self._updates[number]).encode(), secret=secret)

    def post_raw(self, body: bytes, *, secret: str | None = None) -> int:
        """Post anything to the webhook."""
        headers = {"Content-Type": "application/json", SECRET_HEADER: secret or self.webhook["secret_token"]}
        url = self.webhook["url"]
        return httpx.post(url, content=body, headers=headers, timeout=60, trust_env=False, verify=PLAIN).status_code

    # What goes wrong.

    def refuse(self, method: str, status: int, description: str, *, times: int = 1, **parameters: Json) -> None:
        """Refuse the next calls of a method."""
        with self._changed:
            self._troubles += [Trouble(method, "refused", status, description, parameters or None)] * times

    def lose(self, method: str, kind: Literal["lost", "unheard"] = "lost", *, times: int = 1) -> None:
        """Break the connection during the next calls of a method."""
        with self._changed:
            self._troubles += [Trouble(method, kind)] * times

    def recover(self) -> None:
        """End all faults."""
        with self._changed:
            self._troubles.clear()

    # What can be seen.

    def texts(self, chat_id: int, topic: int | None = None) -> list[str]:
        """Return the present texts of the bot's messages in a chat, in order."""
        with self._changed:
            return [sent.text for sent in self.sent if (sent.chat_id, sent.topic) == (chat_id, topic)]

    def unconfirmed(self) -> int:
        """Return the number of unconfirmed updates."""
        with self._changed:
            return len(self._updates)

    def called(self, method: str) -> list[Call]:
        """Return the calls of a method so far."""
        with self._changed:
            return [call for call in self.calls if call.method == method]

    def until(self, look: Callable[[], T], *, seconds: float = 60.0) -> T:
        """Wait until `look` returns something. It is called after every request, so it must not block."""
        end = time.monotonic() + seconds
        with self._changed:
            while not (found := look()):
                left = end - time.monotonic()
                assert left > 0, f"it did not happen; the last calls: {self.calls[-5:]}"
                self._changed.wait(min(left, 0.1))
            return found

    # What the server does.

    def answer(self, token: str, method: str, given: dict[str, Json]) -> Json:
        """Execute a call. Raises Refusal, or ConnectionError to hang up."""
        if token != TOKEN:
            raise Refusal(401, "Unauthorized")
        run = getattr(self, f"_{method.lower()}", None)
        if run is None:
            raise Refusal(404, "Not Found")
        call = Call(method.lower(), given, time.monotonic())
        self.on_call(call)
        with self._changed:
            self.calls.append(call)
            trouble = next((one for one in self._troubles if one.method.lower() == call.method), None)
            if trouble is not None:
                self._troubles.remove(trouble)
                if trouble.kind == "refused":
                    raise Refusal(trouble.status, trouble.description, trouble.parameters)
                if trouble.kind == "lost":
                    raise ConnectionError
            result = run(given)
            self._changed.notify_all()
            if trouble is not None:
                raise ConnectionError
        return result

    def _getme(self, _: Json) -> Json:
        return {"id": BOT_ID, "is_bot": True, "first_name": "Hermes", "username": USERNAME}

    def _getupdates(self, given: Json) -> Json:
        if self.webhook.get("url"):
            raise Refusal(409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook")
        if "offset" in given:
            done = {number for number in self._updates if number < int(given["offset"])}
            self.confirmed |= done
            for number in done:
                del self._updates[number]
        end = time.monotonic() + int(given.get("timeout", 0))
        while not self._updates and not self._closing and (left := end - time.monotonic()) > 0:
            self._changed.wait(left)
        return [self._updates[number] for number in sorted(self._updates)][: int(given.get("limit", 100))]

    def _sendmessage(self, given: Json) -> Json:
        chat_id = self._chat(given)
        text = self._text(given)
        topic = int(given["message_thread_id"]) if "message_thread_id" in given else None
        sent = Sent(next(self._numbers), chat_id, topic, [text], given.get("entities"))
        self.sent.append(sent)
        return self._shown(sent)

    def _editmessagetext(self, given: Json) -> Json:
        chat_id, number = self._chat(given), int(given["message_id"])
        sent = next((one for one in self.sent if (one.id, one.chat_id) == (number, chat_id)), None)
        if sent is None:
            raise Refusal(400, "Bad Request: message to edit not found")
        text = self._text(given)
        if (text, given.get("entities")) == (sent.text, sent.entities):
            raise Refusal(
                400,
                "Bad Request: message is not modified: specified new message content and reply markup are exactly "
                "the same as a current content and reply markup of the message",
            )
        sent.texts.append(text)
        sent.entities = given.get("entities")
        return self._shown(sent)

    def _sendchataction(self, given: Json) -> Json:
        self._chat(given)
        return True

    def _setmycommands(self, _: Json) -> Json:
        return True

    def _setwebhook(self, given: Json) -> Json:
        self.webhook = dict(given)
        return True

    def _deletewebhook(self, _: Json) -> Json:
        self.webhook = {}
        return True

    def _chat(self, given: Json) -> int:
        chat_id = int(given["chat_id"])
        if chat_id in self._moved:
            moved = "Bad Request: group chat was upgraded to a supergroup chat"
            raise Refusal(400, moved, {"migrate_to_chat_id": self._moved[chat_id]})
        if chat_id not in self._chats:
            raise Refusal(400, "Bad Request: chat not found")
        return chat_id

    def _text(self, given: Json) -> str:
        text = str(given.get("text", ""))
        if not text.strip():
            raise Refusal(400, "Bad Request: message text is empty")
        if units(text) > MAX_MESSAGE_UNITS:
            raise Refusal(400, "Bad Request: message is too long")
        for entity in given.get("entities") or []:
            if entity["offset"] < 0 or entity["length"] <= 0 or entity["offset"] + entity["length"] > units(text):
                raise Refusal(400, "Bad Request: ENTITY_BOUNDS_INVALID")
        return text

    def _shown(self, sent: Sent) -> Json:
        chat = {"id": sent.chat_id, "type": "private"}
        return {
            "message_id": sent.id,
            "date": int(time.time()),
            "chat": chat,
            "from": self._getme({}),
            "text": sent.text,
        }


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of bots that were killed."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Translates between the wire format and calls."""

    api: ClassVar[BotApi]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.strip("/").split("/")
        token, method = path[0].removeprefix("bot"), path[-1]
        try:
            self._write(200, {"ok": True, "result": self.api.answer(token, method, self._given(body))})
        except Refusal as error:
            answer: dict[str, Json] = {"ok": False, "error_code": error.status, "description": error.description}
            if error.parameters:
                answer["parameters"] = error.parameters
            self._write(error.status, answer)
        except ConnectionError:
            self.close_connection = True

    do_GET = do_POST

    def _given(self, body: bytes) -> dict[str, Json]:
        """Return the parameters of a form, whose values other than text are JSON."""
        if "json" in self.headers.get("Content-Type", ""):
            found: dict[str, Json] = json.loads(body or b"{}")
            return found
        given = dict(parse_qsl(body.decode(), keep_blank_values=True))
        for name in ("entities", "allowed_updates", "commands", "reply_parameters"):
            if name in given:
                given[name] = json.loads(given[name])
        return given

    def _write(self, status: int, answer: Json) -> None:
        body = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # the bot was killed
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
