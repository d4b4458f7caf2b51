"""A gateway in this process: real store, a scripted model, and a platform in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes.app import App
from hermes.clock import Clock, SystemClock
from hermes.configuration import configure
from hermes.events import Failed, Replied, Stopped
from hermes.gateway.gateway import Gateway
from hermes.gateway.platform import Chat, ChatType, Inbound, Intake
from hermes.gateway.platforms.api_door import follow
from hermes.home import Home
from hermes.hosting import open_gateway
from hermes.llm.events import Completed, Reply, TextPiece
from hermes.llm.model import ModelRequest
from hermes.settings import AUTO_TITLE, MODEL_TOOLS, PROVIDER
from hermes.settings.layers import Given
from hermes.store.store import Store
from tests.llm.scripted import ScriptedAnswer, ScriptedModel

TIMEOUT_SECONDS = 60.0
LONG_DEADLINES: dict[str, Any] = {"memory__deadline": 60.0, "memory__first_deadline": 60.0}
"""Settings with long deadlines for the memory provider, for slow machines."""
Sending = Callable[[Chat, str], None]


class QuickClock:
    """A clock that runs `speed` times as fast as the machine's."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._begun = time.monotonic()

    def now(self) -> float:
        return 1_800_000_000.0 + (time.monotonic() - self._begun) * self._speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)


class FakePlatform:
    """A chat platform in memory. `sent` has the delivered messages; `before_send` may raise like a platform."""

    longest_message = 4000

    def __init__(self, name: str = "fake", *, can_edit: bool = False) -> None:
        self.name = name
        self.can_edit = can_edit
        self.sent: list[tuple[str, str]] = []
        self.edits: list[tuple[str, str]] = []
        self.before_send: Sending = lambda _chat, _text: None
        self.closed = False
        self._intake: asyncio.Future[Intake] = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Condition()

    async def run(self, intake: Intake) -> None:
        self._intake.set_result(intake)
        await intake.report(self.name, "ok", "")
        await asyncio.Event().wait()

    async def deliver(self, message: Inbound) -> None:
        """Deliver a message; acknowledged on return."""
        await (await self._intake).receive(message)

    async def send(self, chat: Chat, text: str, key: str = "") -> str:
        self.before_send(chat, text)
        self.sent.append((chat.chat_id, text))
        async with self._changed:
            self._changed.notify_all()
        return str(len(self.sent))

    async def was_sent(self, chat: Chat, key: str, since: float) -> bool:
        return False

    async def edit(self, chat: Chat, message_id: str, text: str) -> None:
        self.edits.append((message_id, text))
        self.sent[int(message_id) - 1] = (chat.chat_id, text)
        async with self._changed:
            self._changed.notify_all()

    async def show_typing(self, chat: Chat) -> None:
        pass

    async def close(self) -> None:
        self.closed = True

    def texts(self, chat_id: str) -> list[str]:
        return [text for chat, text in self.sent if chat == chat_id]

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until the condition is true; it is checked after each sent message."""
        async with asyncio.timeout(TIMEOUT_SECONDS), self._changed:
            await self._changed.wait_for(true)


_ids = iter(range(1, 1_000_000))


def message(
    text: str,
    chat_id: str = "7",
    *,
    kind: ChatType = "dm",
    author: str = "ann",
    alt: str | None = None,
    message_id: str | None = None,
    platform: str = "fake",
) -> Inbound:
    """Return a person's message in a chat, with a new id."""
    return Inbound(
        chat=Chat(platform, kind, chat_id),
        message_id=message_id or str(next(_ids)),
        text=text,
        author_id=author,
        author_name=author.title(),
        author_alt=alt,
    )


def echo(request: ModelRequest) -> ScriptedAnswer:
    """Return the messages since the last reply, joined."""
    said: list[str] = []
    for found in request.messages:
        said = [] if found["role"] == "assistant" else [*said, found["content"]] if found["role"] == "user" else said
    return Reply(f"echo: {' + '.join(said)}")


@dataclass
class Core:
    """A running gateway and its parts."""

    gateway: Gateway
    store: Store
    model: ScriptedModel
    platform: FakePlatform
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    running: asyncio.Task[None] | None = None

    async def end(self) -> None:
        """Stop the gateway gracefully."""
        self.stopping.set()
        assert self.running is not None
        await self.running

    def asked(self, place: int = -1) -> list[str]:
        """Return the people's messages in one of the requests to the model."""
        return [m["content"] for m in self.model.requests[place].messages if m["role"] == "user"]


def load_app(home: Path, clock: Clock, **settings: object) -> App:
    """The app of a home with these settings (`__` for a dot). It has no memory, makes no titles and offers its
    model tools unless they say otherwise."""
    given = {
        PROVIDER.key: "none",
        AUTO_TITLE.key: False,
        MODEL_TOOLS.key: "on",
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    entries = [Given(name, value, "test") for name, value in given.items()]
    path = Home(home)
    return App(path, {}, configure(entries, {}).checked(), clock)


@asynccontextmanager
async def running_core(
    home: Path,
    script: Callable[[ModelRequest], ScriptedAnswer] = echo,
    *,
    platform: FakePlatform | None = None,
    clock: Clock | None = None,
    **settings: object,
) -> AsyncIterator[Core]:
    """Run a gateway over the store of `home` that accepts everybody."""
    given = {"gateway__allow": "*", "memory__review_every": 0, "compression__idle": 0, **settings}
    app = load_app(home, clock or SystemClock(), **given)
    async with await app.open_store() as store:
        model = ScriptedModel(script)
        gateway = open_gateway(app, store, model)
        core = Core(gateway, store, model, platform or FakePlatform())
        core.running = asyncio.create_task(gateway.run([core.platform], core.stopping))
        try:
            yield core
        finally:
            await core.end()


class Gate:
    """A script that echoes, but holds the reply to any message with `wait` until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.asked = asyncio.Event()

    def __call__(self, request: ModelRequest) -> ScriptedAnswer:
        reply = echo(request)
        assert isinstance(reply, Reply)
        if "wait" not in reply.text:
            return reply
        self.asked.set()
        return [TextPiece("echo: "), self.opened, TextPiece(reply.text[6:]), Completed(reply)]


def request(text: str, message_id: str, *, session: str | None = None, key: str | None = None) -> Inbound:
    """Return the message that the API makes of a request."""
    chat = Chat("api", "api", session or key or "")
    return Inbound(chat, message_id, text, session_key=key, session_id=session)


async def talk(core: Core, message: Inbound) -> str:
    """Hand in a message as the API does; return the text of its end."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        _, heard = await follow(core.gateway, message)
        async with aclosing(heard) as events:
            async for event in events:
                if isinstance(event, Replied | Stopped):
                    return event.text
                assert not isinstance(event, Failed), event
    raise AssertionError("a turn has an end")
