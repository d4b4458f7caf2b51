"""What a terminal talks to: one session at a time, and the slash commands around it."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from difflib import get_close_matches
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.agent import Agent
from hermes.agent.compress import compressor_of, describe
from hermes.agent.lane import LaneTerms, hold_lane
from hermes.agent.leftovers import review_leftovers
from hermes.agent.prompt import read_soul
from hermes.agent.review import review_now, wants_review
from hermes.agent.stopping import unless_stopped
from hermes.agent.turn import run_turn
from hermes.app import App
from hermes.assembly import (
    FLOOR_NOTICE,
    OPENAI,
    has_model,
    open_agent,
    open_notes,
    open_people,
    open_provider,
    open_speaker,
)
from hermes.cli.memory_default import take_default_notice
from hermes.cli.memory_status import read_remarks
from hermes.cli.output import printable, show_time
from hermes.cli.rows import head
from hermes.cli.status import Status
from hermes.cli.talk import PROMPT
from hermes.compression.compressor import Request
from hermes.db.engine import Tx
from hermes.db.owners import new_owner
from hermes.errors import StoreError, UsageError
from hermes.events import MemoryUpdated, Notice, TurnEvent
from hermes.llm.model import Model
from hermes.logs import SESSION
from hermes.memory.deliveries import Deliveries
from hermes.memory.no_memory import NoMemory
from hermes.memory.notes import FILES
from hermes.memory.registry import NONE
from hermes.memory.values import Ending
from hermes.scope import OWNER, TERMINAL
from hermes.settings import BASE_URL, MEMORY_NOTICES, MODEL, PROVIDER
from hermes.store.note_remarks import has_remarks, take_remarks
from hermes.store.sessions import Listed
from hermes.store.store import Store
from hermes.types import Session

log = logging.getLogger("hermes.review")

LISTED = 10
LANES_AT_ONCE = 2
"""Lanes of the memory outbox that a terminal delivers side by side."""
AT_THE_END = 5.0
"""Seconds that a conversation takes at its end to tell memory what it has not been told yet."""


class Answered(Struct, frozen=True):
    """What a slash command answers; `over` ends the conversation."""

    text: str
    over: bool = False


class Conversation:
    """Talks in one session until told to talk in another. A new session is made with its first message."""

    def __init__(self, app: App, store: Store, *, for_one_turn: bool = False) -> None:
        self.app = app
        self.store = store
        self._owner = new_owner()
        self._provider = open_provider(app, store, for_one_turn=for_one_turn)
        self._all_told = True
        self._deliveries = None if self._provider is None else Deliveries(self._provider, self._owner, LANES_AT_ONCE)
        self._session: Session | None = None
        self._agent: Agent | None = None
        self._wanted_title: str | None = None
        self._starts_incognito = False
        self._said_floor = False
        self._said_default = False
        self._looked_back = False
        self._background: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()
        self.untold: list[TurnEvent] = []
        """What was left to say when an agent was closed; the next turn says it, or whoever ends the conversation."""

    @property
    def session_id(self) -> str | None:
        """The session's id, None before the first message."""
        return self._session.id if self._session else None

    @property
    def status(self) -> Status:
        """Model, session, memory as they are now, or as they will be with the first message."""
        session = (self._session.title or self._session.id) if self._session else (self._wanted_title or "new")
        return Status(self._model_name(), printable(session), self._memory_state())

    def _model_name(self) -> str:
        settings = self.app.settings
        if self._agent is not None:
            return "none" if self._agent.answers_from_memory else self._agent.model.name
        if not has_model(settings):
            return "none"
        return settings.get(MODEL) or urlsplit(settings.get(BASE_URL) or OPENAI).netloc.rpartition("@")[2]

    def _memory_state(self) -> str:
        provider, agent = self.app.settings.get(PROVIDER), self._agent
        if self._starts_incognito:
            return "incognito"
        notes = "notes (unreadable)" if agent is not None and agent.note_problems else "notes"
        if provider == NONE:
            return notes
        state = "ok" if agent is None else agent.memory.state
        return f"{notes} + {provider}{'' if state == 'ok' else f' ({state})'}"

    async def resume(self, session: Session) -> None:
        """Go on with a session that is there."""
        await self.leave("switch")
        self._session = session
        self._starts_incognito = await self.store.read(lambda tx: self.store.incognito.is_on(tx, session.id))
        await self.prepare()

    async def recap(self) -> str:
        """Which session is gone on with and what was said in it last; "" for a new one."""
        if self._session is None:
            return ""
        here, title = self._session.id, self._session.title
        view = await self.store.read(lambda tx: self.store.compressions.view(tx, here))
        room = shutil.get_terminal_size().columns - len(PROMPT)
        said = [message for message in view.messages if message.role in ("user", "assistant") and message.content]
        last = [f"{PROMPT if m.role == 'user' else ''}{head(printable(m.content or ''), room)}" for m in said[-2:]]
        called = f" “{printable(title)}”" if title else ""
        return "\n".join([f"Going on with {here}{called} ({self._session.message_count} messages).", *last])

    async def prepare(self) -> None:
        """Make the agent now rather than with the first message, so that a wrong setting shows at once."""
        if self._session is not None and self._agent is None:
            await self._open_agent(open_speaker(self.app), self._session)

    async def _agent_of(self, model: Model, session: Session) -> Agent:
        """A guest's or a group's session reaches no further because the owner speaks in it: they read it too."""
        scope = await self.store.read(lambda tx: open_people(self.app).scope_of(tx, session))
        return open_agent(self.app, self.store, model, session, scope, self._owner, self._provider)

    async def _open_agent(self, model: Model, session: Session) -> None:
        self._agent = await self._agent_of(model, session)
        if self._deliveries is not None:
            self._deliveries.start()

    async def leave(self, why: Ending = "new") -> None:
        """The next message begins a new session. The last one is reviewed and closed off everybody's turn."""
        if self._agent is not None and wants_review(self._agent) and self._agent.turns:
            self._in_background(self._look_back(self._agent, why))
        elif self._agent is not None:
            await self._close(self._agent, why)
        self._agent, self._session, self._starts_incognito = None, None, False

    async def end(self, seconds: float = AT_THE_END) -> bool:
        """Close all that is open, and deliver what memory has not been told, for so long. False when something is left.

        What a review has not read yet is read after the next start. Ending twice is fine.
        """
        self._ending.set()
        if self._background:
            await asyncio.wait(self._background)
        memory = self._agent.memory if self._agent is not None else NoMemory()
        if self._agent is not None:
            await self._close(self._agent, "exit")
        self._agent, self._session = None, None
        if self._deliveries is not None and self._provider is not None:
            self._all_told = await self._deliveries.finish(seconds) and self._all_told
            await self._provider.close()
        self.untold += [Notice(line, is_outage=True) for line in memory.take_notices()]
        self.untold += await self._take_remarks()
        return self._all_told

    async def _take_remarks(self) -> list[MemoryUpdated]:
        """What reviews have noted of the owner, here or in a chat, and was told nowhere yet. While the store cannot be
        written it waits."""
        if not self.app.settings.get(MEMORY_NOTICES):
            return []
        try:
            if not await self.store.read(lambda tx: has_remarks(tx, OWNER)):
                return []
            return await self.store.write(lambda tx: take_remarks(tx, OWNER))
        except StoreError as error:
            log.warning("what reviews have noted cannot be told yet: %s", error.line())
            return []

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _look_back(self, agent: Agent, why: Ending) -> None:
        await unless_stopped(review_now(agent), self._ending)
        await self._close(agent, why)

    async def _close(self, agent: Agent, why: Ending) -> None:
        self.untold += await agent.close(why)
        await agent.model.close()

    @asynccontextmanager
    async def _lend(self, session: Session) -> AsyncIterator[Agent]:
        agent = await self._agent_of(open_speaker(self.app), session)
        try:
            yield agent
        finally:
            await self._close(agent, "idle")

    def _is_left(self, session: Session) -> bool:
        return session.source == TERMINAL and session.id != self.session_id

    async def say(self, text: str, stop: asyncio.Event) -> AsyncGenerator[TurnEvent, None]:
        """One turn."""
        if self._session is None:
            await self._begin()
        await self.prepare()
        assert self._agent is not None, "prepare made it"
        token = SESSION.set(self._agent.session_id)
        try:
            self.untold += await self._take_remarks()
            while self.untold:
                yield self.untold.pop(0)
            for line in await self._news_of_memory():
                yield Notice(line)
            if self._agent.answers_from_memory and not self._said_floor:
                self._said_floor = True
                yield Notice(FLOOR_NOTICE)
            async with aclosing(run_turn(self._agent, text, stop)) as events:
                async for event in events:
                    yield event
            if not self._looked_back and wants_review(self._agent):
                self._looked_back = True
                leftovers = review_leftovers(self.store, self._is_left, self._lend)
                self._in_background(unless_stopped(leftovers, self._ending))
        finally:
            SESSION.reset(token)

    async def _news_of_memory(self) -> list[str]:
        """What is told once of a memory that is there by default, with what it found and leaves alone."""
        if self._provider is None or self._said_default:
            return []
        self._said_default = True
        notice = await take_default_notice(self.app, self.store)
        return [] if notice is None else [notice, *await read_remarks(self.app, self.store)]

    async def command(self, line: str) -> Answered:
        """Run a slash command. Raises UsageError for one that does not exist."""
        name, _, rest = line[1:].partition(" ")
        found = COMMANDS.get(ALIASES.get(name, name))
        if found is None:
            near = "".join(f" (did you mean /{known}?)" for known in get_close_matches(name, COMMANDS, n=1))
            hint = "`/help` lists them; to say it as a message, put a space before it"
            raise UsageError(f"there is no command /{name}{near}", hint=hint)
        return await found.run(self, rest.strip())

    async def _begin(self) -> None:
        """A new session, once everything that it needs is there: a start that fails leaves nothing behind."""
        read_soul(self.app.home.soul_file)
        model = open_speaker(self.app)
        session = await self.store.create_session(TERMINAL, title=self._wanted_title)
        if self._starts_incognito:
            await self.store.write(lambda tx: self.store.incognito.begin(tx, session.id))
        self._wanted_title, self._session = None, session
        await self._open_agent(model, session)

    async def _new(self, _: str) -> Answered:
        await self.leave()
        return Answered("A new session begins with your next message.")

    async def _title(self, title: str) -> Answered:
        if not title:
            shown = self._wanted_title
            if self._session is not None:
                here = self._session.id
                shown = (await self.store.read(lambda tx: self.store.sessions.get(tx, here))).title
            return Answered(shown or "(no title)")
        if self._session is None:
            self._wanted_title = title
        else:
            here = self._session.id
            await self.store.write(lambda tx: self.store.sessions.set_title(tx, here, title))
            self._session = replace(self._session, title=title)
            if self._agent is not None and not self._starts_incognito:
                await self._agent.memory.retitled(title)
        return Answered(f"Title: {title}")

    async def recent(self) -> list[Listed]:
        """The sessions that were active last."""
        return await self.store.read(lambda tx: self.store.sessions.recent(tx, limit=LISTED))

    async def _sessions(self, _: str) -> Answered:
        # id, two gaps and the time take 44 columns.
        room = max(16, shutil.get_terminal_size().columns - 44)
        lines = [
            f"{entry.session.id}  {show_time(entry.last_active)}  {head(entry.session.title or entry.preview, room)}"
            for entry in await self.recent()
        ]
        return Answered("\n".join([*lines, "`/resume ID` goes on with one."]) if lines else "No sessions yet.")

    async def _resume(self, name: str) -> Answered:
        if not name:
            raise UsageError("which session?", hint="`/sessions` lists them")
        session = await self.store.read(lambda tx: find_live(self.store, tx, name))
        await self.resume(session)
        return Answered(await self.recap())

    async def _stop(self, _: str) -> Answered:
        return Answered("Nothing is running. While a reply is coming, /stop or Ctrl-C ends it.")

    async def _compress(self, focus: str) -> Answered:
        await self.prepare()
        if self._agent is None:
            raise UsageError("there is nothing to compress yet")
        result = await compressor_of(self._agent).compress(self._agent.session_id, Request(focus=focus))
        return Answered(describe(result))

    async def _memory(self, word: str) -> Answered:
        if word in ("on", "off"):
            await self._set_incognito(word == "off")
            return Answered(
                "Incognito: from here on nothing is recalled, noted or sent to memory."
                if word == "off"
                else "Memory is on again. What was said incognito stays out of it for good."
            )
        if word:
            raise UsageError(f"/memory takes on or off, not '{word}'")
        notes = open_notes(self.app, OWNER) if self._agent is None else self._agent.notes
        read = notes.read_all()
        parts = [f"{FILES[target]}\n{text or '(empty)'}" for target, text in sorted(read.texts.items(), reverse=True)]
        parts += [problem.line() for problem in read.problems]
        state = "off (incognito)" if self._starts_incognito else "on"
        return Answered("\n\n".join([*parts, f"Memory is {state}."]))

    async def _set_incognito(self, wanted: bool) -> None:
        if self._session is not None:
            here, change = self._session.id, self.store.incognito.begin if wanted else self.store.incognito.end
            # Between turns: a reply that another process is waiting for belongs to the side of its question.
            async with hold_lane(self.store, here, self._owner, LaneTerms()):
                await self.store.write(lambda tx: change(tx, here))
        self._starts_incognito = wanted

    async def _help(self, _: str) -> Answered:
        width = max(len(command.usage) for command in COMMANDS.values())
        return Answered("\n".join(f"/{command.usage:<{width}}  {command.help}" for command in COMMANDS.values()))

    async def _quit(self, _: str) -> Answered:
        return Answered("", over=True)


Run: TypeAlias = Callable[[Conversation, str], Awaitable[Answered]]


class Command(Struct, frozen=True):
    """One slash command."""

    usage: str
    help: str
    run: Run


ALIASES = {"exit": "quit"}
COMMANDS: dict[str, Command] = {
    command.usage.split()[0]: command
    for command in (
        Command("new", "Begin a new session.", Conversation._new),
        Command("title [TEXT]", "Show or change this session's title.", Conversation._title),
        Command("sessions", "The sessions that were active last.", Conversation._sessions),
        Command("resume ID", "Go on with another session, by id, its beginning, or its title.", Conversation._resume),
        Command("stop", "End the reply that is coming; what was said is kept.", Conversation._stop),
        Command("compress [FOCUS]", "Summarise the older part; FOCUS says what matters most.", Conversation._compress),
        Command("memory [on|off]", "Show the notes; off makes this conversation incognito.", Conversation._memory),
        Command("help", "This list.", Conversation._help),
        Command("quit", "Leave.", Conversation._quit),
    )
}


def find_live(store: Store, tx: Tx, name: str) -> Session:
    """The session a person means, or the one that continues it."""
    return store.sessions.get(tx, store.sessions.live_id(tx, store.sessions.find(tx, name).id))
