"""Turns that run in this process, independent of pages: closing or reloading a page stops nothing.

say ── lane, message committed ── events ── LiveTurn ── any number of pages follow it
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import aclosing, suppress
from typing import Literal

from msgspec import Struct, field

from hermes.agent.agent import Agent
from hermes.agent.turn import run_turn
from hermes.agent.undo import retry
from hermes.errors import HermesError, UsageError
from hermes.events import (
    Accepted,
    Failed,
    MemoryUpdated,
    Notice,
    ReasoningDelta,
    Replied,
    Stopped,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    Waiting,
)
from hermes.gateway.agent_cache import NOBODY, AgentCache
from hermes.logs import SESSION
from hermes.scope import OWNER
from hermes.slash.context import Again, Say, Surface
from hermes.slash.table import find_command, unknown_command
from hermes.store.store import Store
from hermes.store.turns import NoRecord
from hermes.types import Message, Session

log = logging.getLogger("hermes.web")
ACCEPT_SECONDS = 20.0
"""Time that a request waits for its message to be stored before the page shows that it is waiting."""
CLOSE_SECONDS = 10.0
BUSY = "a reply is in progress in this session"
DEFECT = "this is an error in hermes; details are in the log"
NEW_SESSION = "“New chat” begins another session; this one stays as it is."
Phase = Literal["beginning", "waiting", "running", "over"]


class Bell:
    """A repeatable event. `ring` wakes all waiters of the present `next`."""

    def __init__(self) -> None:
        self.next = asyncio.Event()

    def ring(self) -> None:
        rung, self.next = self.next, asyncio.Event()
        rung.set()


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after `seconds`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class LiveTurn(Struct):
    """The state of a turn or command: the message, the reply so far, and notices."""

    said: str
    bell: Bell
    """Rings after each change."""
    phase: Phase = "beginning"
    text: str = ""
    """The part of the reply that is not stored yet."""
    doing: str = ""
    """The running tool and its progress."""
    thinks: bool = False
    told: list[str] = field(default_factory=list)
    """Notices, and the output of a command."""
    problem: str = ""
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_over(self) -> bool:
        return self.phase == "over"

    def hear(self, event: TurnEvent) -> None:
        """Update the state from an event."""
        match event:
            case Waiting():
                self.phase = "waiting"
            case Accepted():
                self.phase = "running"
            case TextDelta(text):
                self.text, self.thinks = self.text + text, False
            case ReasoningDelta():
                self.thinks = True
            case ToolStarted(name=name):
                self.text, self.doing = "", name
            case ToolProgress(name=name, text=text):
                self.doing = f"{name}: {text}"
            case ToolFinished():
                self.doing = ""
            case Notice(text):
                self.told.append(text)
            case MemoryUpdated():
                self.told.append(event.line)
            case Failed(message=message):
                self.problem, self.text = message, ""
            case Replied() | Stopped():
                self.text = ""
        self.bell.ring()

    def end(self) -> None:
        self.phase, self.doing, self.thinks = "over", "", False
        self.bell.ring()


class InBrowser(Struct, frozen=True):
    """The context of a slash command on the page (implements `CommandContext`)."""

    agent: Agent
    stop: asyncio.Event
    cause: str
    surface: Surface = "chat"
    console: None = None

    async def place(self) -> Agent:
        return self.agent

    def may_take_back(self, message: Message) -> bool:  # noqa: ARG002 - the owner may
        return True

    async def begin_session(self) -> str:
        return NEW_SESSION


class LiveTurns:
    """Starts turns, one at a time per session, and tracks them."""

    def __init__(self, store: Store, agents: AgentCache) -> None:
        self._store = store
        self.agents = agents
        self._turns: dict[str, LiveTurn] = {}
        self._bells: dict[str, Bell] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.followers = 0
        """Number of open streams."""
        self.ending = asyncio.Event()
        """Set at shutdown: streams end."""

    def turn(self, session_id: str) -> LiveTurn | None:
        """Return the running turn of a session, or the last one."""
        return self._turns.get(session_id)

    def bell(self, session_id: str) -> Bell:
        """Return the bell of a session, which rings after each change of its turn."""
        return self._bells.setdefault(session_id, Bell())

    async def say(self, session: Session, text: str) -> LiveTurn:
        """Start a turn or run a slash command. Returns when the message is stored or was refused.

        Raises UsageError while another turn runs in this session.
        """
        running = self._turns.get(session.id)
        if running is not None and not running.is_over:
            if text == "/stop":
                running.stop.set()
                return running
            raise UsageError(BUSY, hint="Stop it, or wait until it has ended; your text is kept")
        turn = self._turns[session.id] = LiveTurn(text, self.bell(session.id))
        turn.bell.ring()
        task = asyncio.create_task(self._run(session, turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        until = asyncio.get_running_loop().time() + ACCEPT_SECONDS
        while turn.phase == "beginning" and (left := until - asyncio.get_running_loop().time()) > 0:
            await wait_for(turn.bell.next, left)
        return turn

    def stop(self, session_id: str) -> None:
        """Stop the running turn of a session, if any."""
        if (turn := self._turns.get(session_id)) is not None:
            turn.stop.set()

    def forget(self, session_id: str) -> None:
        """Drop the state of a deleted session."""
        self._turns.pop(session_id, None)
        self._bells.pop(session_id, self.bell(session_id)).ring()
        self.agents.retire(session_id)

    async def wait_for_running(self) -> None:
        """Wait until all running turns are over."""
        if running := set(self._tasks):
            await asyncio.wait(running)

    async def close(self) -> None:
        """Stop all turns. The replies so far are stored."""
        self.ending.set()
        for turn in self._turns.values():
            turn.stop.set()
            turn.bell.ring()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
        await self.agents.close()

    async def _run(self, session: Session, turn: LiveTurn) -> None:
        token = SESSION.set(session.id)
        try:
            async with self.agents.use(session, session.id, OWNER, NOBODY) as agent:
                said = await self._read(agent, turn)
                if said is None:
                    return
                if isinstance(said, Say):
                    events = run_turn(agent, said.text, turn.stop)
                else:
                    events = retry(agent, said.cause, turn.stop, NoRecord())
                async with aclosing(events):
                    async for event in events:
                        turn.hear(event)
        except HermesError as error:
            turn.problem = error.line()
        except Exception:  # the page shows it, and the server continues
            log.exception("a turn of session %s failed", session.id)
            turn.problem = DEFECT
        finally:
            turn.end()
            SESSION.reset(token)

    async def _read(self, agent: Agent, turn: LiveTurn) -> Say | Again | None:
        """Return the message of a turn; None for a command without a turn."""
        if not turn.said.startswith("/"):
            return Say(turn.said)
        typed = find_command("chat", turn.said)
        if typed is None:
            raise unknown_command("chat", turn.said)
        answer = await typed.run(InBrowser(agent, turn.stop, secrets.token_hex(16)))
        if isinstance(answer, str):
            turn.told.append(answer)
            return None
        turn.phase = "running"
        return answer
