"""A conversation at a terminal: one open session at a time.

resume, or the first message begins one ── take_turn, as often as wanted ── leave for another ── end

The agents of a terminal's sessions. Left sessions are reviewed in the background.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress

from msgspec.structs import replace

from hermes import assembly
from hermes.agent.agent import Agent
from hermes.agent.leftovers import LEFTOVERS_INTERVAL_SECONDS, process_leftovers
from hermes.agent.loop import unless_stopped
from hermes.agent.prompt import read_persona
from hermes.agent.review import review_now, wants_review
from hermes.agent.turn import run_turn
from hermes.agent.undo import retry
from hermes.app import App
from hermes.cli.output import printable
from hermes.cli.project_file import ProjectFile
from hermes.cli.status import ChatStatus, Recap, recap
from hermes.db.engine import Tx
from hermes.db.leases import new_owner
from hermes.errors import ModelError, StoreError
from hermes.events import MemoryUpdated, Notice, TurnEvent
from hermes.llm.discover import ModelOffer
from hermes.llm.model import Model
from hermes.logs import SESSION
from hermes.memory.registry import NONE
from hermes.memory.values import Ending
from hermes.owner.memory import OwnMemory
from hermes.owner.status import read_remarks, take_default_notice
from hermes.scope import OWNER, TERMINAL
from hermes.settings import CONTEXT_LENGTH, MEMORY_NOTICES, PROVIDER
from hermes.slash.context import Again, Beginning, Say
from hermes.store.memory_rows import hide_title
from hermes.store.session_settings import KeptProjectFile, keep_project_file, set_chosen_model
from hermes.store.store import Store
from hermes.store.turns import NoRecord
from hermes.types import Session

MAX_LANES = 2
"""Lanes of the memory outbox that a terminal delivers side by side."""


class TerminalAgents:
    """Opens and closes agents, which share one memory and one list of models."""

    def __init__(self, app: App, store: Store, *, for_one_turn: bool) -> None:
        self._app = app
        self._store = store
        self._for_one_turn = for_one_turn
        self._owner = new_owner()
        self.memory = OwnMemory(app, store, self._owner, lanes=MAX_LANES, for_one_turn=for_one_turn)
        self.offer = assembly.open_offer(app)
        self.pending_events: list[TurnEvent] = []
        """Events left over from closed agents."""
        self._background: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()
        self._next_look = 0.0
        self._left_before: float | None = None

    def open_model(self) -> Model:
        return assembly.open_speaker(self._app, self.offer)

    async def open(self, session: Session, model: Model) -> Agent:
        """Open an agent for a session. A guest's or group's session keeps its limited scope even though the owner
        speaks in it."""
        people = assembly.open_people(self._app)
        scope = await self._store.read(lambda tx: people.scope_of(tx, session))
        agent = assembly.open_agent(
            self._app, self._store, model, session, scope, self._owner, self.memory.provider, offer=self.offer
        )
        if self._for_one_turn and agent.policy.titles == "soon":
            agent.policy = replace(agent.policy, titles="later")
        await agent.take_up_choice()
        return agent

    async def close(self, agent: Agent, why: Ending) -> None:
        try:
            self.pending_events += await agent.close(why)
        finally:  # the end of a conversation may cancel the close
            await agent.configured_model.close()

    async def leave(self, agent: Agent, why: Ending) -> None:
        """Close an agent. If it needs a review, the review runs first, in the background."""
        if wants_review(agent) and agent.turns:
            self._run_in_background(self._review(agent, why))
        else:
            await self.close(agent, why)

    def ask_for_models(self) -> None:
        """Fetch the endpoint's models in the background, to learn which one will answer and its context length. Skipped
        if both are configured."""
        if self.offer is not None and not (self.offer.default and self._app.settings.is_given(CONTEXT_LENGTH)):
            self._run_in_background(self._list_models(self.offer))

    def see_to_left_sessions(self, is_left: Callable[[Session], bool]) -> None:
        """Review and title sessions that were left, at intervals."""
        now = asyncio.get_running_loop().time()
        if now >= self._next_look and not self._background:
            self._next_look = now + LEFTOVERS_INTERVAL_SECONDS
            self._left_before = self._left_before or self._store.clock.now()
            leftovers = process_leftovers(self._store, is_left, self._lend, self._left_before)
            self._run_in_background(unless_stopped(leftovers, self._ending))

    async def end_reviews(self) -> None:
        """Stop background work. Unfinished reviews run after the next start."""
        self._ending.set()
        if self._background:
            await asyncio.wait(self._background)

    def _run_in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _review(self, agent: Agent, why: Ending) -> None:
        await unless_stopped(review_now(agent), self._ending)
        await self.close(agent, why)

    async def _list_models(self, offer: ModelOffer) -> None:
        with suppress(ModelError):  # the first turn reports it
            await unless_stopped(offer.list(), self._ending)

    @asynccontextmanager
    async def _lend(self, session: Session) -> AsyncIterator[Agent]:
        agent = await self.open(session, self.open_model())
        try:
            yield agent
        finally:
            await self.close(agent, "idle")


log = logging.getLogger("hermes.review")

CLOSE_TIMEOUT_SECONDS = 5.0
"""Time limit, at the end of a conversation, for delivering unsynced messages to memory."""


class TerminalConversation:
    """The session a terminal is in. The first message creates a new session; `resume` and `leave` switch to another."""

    def __init__(self, app: App, store: Store, *, for_one_turn: bool = False) -> None:
        self.app = app
        self.store = store
        self.agents = TerminalAgents(app, store, for_one_turn=for_one_turn)
        self.agent: Agent | None = None
        """The session's agent; None before the first message."""
        self._session: Session | None = None
        self._beginning = Beginning(self.agents.memory.book, self.agents.offer)
        self.is_incognito = False
        """True while messages stay out of memory."""
        self.project: ProjectFile | None = None
        """The trusted AGENTS.md that is added to sessions begun here."""
        self.is_hurried = False
        """True if `end` must not wait: a background process then delivers unsynced messages."""
        self.pending_events = self.agents.pending_events
        """Notices left over from closed agents. The next turn shows them, or the caller at the end."""
        self._announces_notes = app.settings.get(MEMORY_NOTICES)
        self._announced_offline = self._announced_default = False
        self._may_announce_model = False
        """True until a new session has shown that its model was picked automatically."""

    @property
    def session_id(self) -> str | None:
        """The session's id; None before the first message."""
        return self._session.id if self._session else None

    @property
    def status(self) -> ChatStatus:
        """Model, session title and memory state, as they are or as the first message will make them."""
        made = self.agent.given_title if self.agent else None
        here = self._session
        session = (here.title or made or here.id) if here else (self._beginning.title or "new")
        return ChatStatus(self._model_name(), printable(session), self._memory_state())

    async def place(self) -> Agent | Beginning:
        """Return the agent of this session, or the settings for the session that the next message will begin."""
        await self.prepare()
        return self._beginning if self.agent is None else self.agent

    async def recap(self) -> Recap | None:
        """Return the recap of a resumed session; None for a new one."""
        return None if self._session is None else await recap(self.store, self._session)

    async def resume(self, session: Session) -> None:
        """Leave the current session and resume `session`."""
        await self.leave("switch")
        self._session = session
        await self.look_again()
        await self.prepare()

    async def prepare(self) -> None:
        """Open the agent now rather than with the first message, so that wrong settings show at once."""
        if self._session is not None and self.agent is None:
            await self._open_agent(self._session, self.agents.open_model())

    async def look_again(self) -> None:
        """Reload title and incognito mode: a command here or elsewhere may have changed them."""
        if self._session is None:
            self.is_incognito = self._beginning.incognito
            return
        here = self._session.id
        session, self.is_incognito = await self.store.read(
            lambda tx: (self.store.sessions.look_up(tx, here), self.store.incognito.is_on(tx, here))
        )
        self._session = session or self._session  # if it was deleted, the next message reports that

    async def take_turn(self, said: Say | Again, stop: asyncio.Event) -> AsyncGenerator[TurnEvent, None]:
        """Run a turn until `stop` is set. Notices are yielded among its events."""
        if self._session is None:
            await self._begin()
        await self.prepare()
        assert self.agent is not None, "prepare made it"
        token = SESSION.set(self.agent.session_id)
        try:
            async for news in self._take_news(self.agent):
                yield news
            turn = (
                run_turn(self.agent, said.text, stop)
                if isinstance(said, Say)
                else retry(self.agent, said.cause, stop, NoRecord())
            )
            async with aclosing(turn) as events:
                async for event in events:
                    if remark := self._take_model_notice(self.agent):
                        yield Notice(remark)
                    yield event
            if wants_review(self.agent) or self.agent.policy.titles == "soon":
                self.agents.see_to_left_sessions(self._is_left)
        finally:
            SESSION.reset(token)

    async def leave(self, why: Ending = "new") -> None:
        """Leave the session; the next message begins a new one. The review of the session runs in the background."""
        if self.agent is not None:
            await self.agents.leave(self.agent, why)
        self.agent, self._session, self.is_incognito, self._may_announce_model = None, None, False, False
        self._beginning = Beginning(self.agents.memory.book, self.agents.offer)

    async def end(self, seconds: float = CLOSE_TIMEOUT_SECONDS) -> bool:
        """Close everything and deliver unsynced messages for up to `seconds`. Returns False if some remain.

        Unfinished reviews run after the next start. Idempotent.
        """
        await self.agents.end_reviews()
        memory = self.agent.memory if self.agent is not None else None
        if self.agent is not None:
            await self.agents.close(self.agent, "exit")
        self.agent, self._session = None, None
        all_synced = await self.agents.memory.finish(0.0 if self.is_hurried else seconds)
        self.pending_events += [Notice(line, is_outage=True) for line in (memory.take_notices() if memory else [])]
        self.pending_events += await self._take_new_notes()
        return all_synced

    async def _begin(self) -> None:
        """Create a session after its persona and model have loaded, so that a failed start leaves nothing behind."""
        read_persona(self.app.home.soul_file)
        model, wanted, project = self.agents.open_model(), self._beginning, self.project
        session = await self.store.create_session(TERMINAL, title=wanted.title)

        def prepare(tx: Tx) -> None:
            if wanted.incognito:
                self.store.incognito.begin(tx, session.id)
                hide_title(tx, session.id, session.title)
            set_chosen_model(tx, session.id, wanted.model)
            if project is not None:
                keep_project_file(tx, session.id, KeptProjectFile(str(project.path), project.text))

        if wanted.incognito or wanted.model is not None or project is not None:
            await self.store.write(prepare)
        self._session, self._may_announce_model = session, True
        await self._open_agent(session, model)

    async def _open_agent(self, session: Session, model: Model) -> None:
        self.agent = await self.agents.open(session, model)
        if self.agent.scope == OWNER:
            self.agent.opened_book = self.agents.memory.book  # numbers that were shown before the first message hold
        self.agents.memory.start_deliveries()

    def _is_left(self, session: Session) -> bool:
        return session.source == TERMINAL and session.id != self.session_id

    def _model_name(self) -> str:
        """Return the name of the model that answers or will answer; "" while unknown."""
        if self.agents.offer is None:
            return "none"
        if self.agent is not None:
            return self.agent.model.name
        return self._beginning.model.name if self._beginning.model else self.agents.offer.answering

    def _memory_state(self) -> str:
        provider, agent = self.app.settings.get(PROVIDER), self.agent
        if self.is_incognito:
            return "incognito"
        notes = "notes (unreadable)" if agent is not None and agent.note_problems else "notes"
        if provider == NONE:
            return notes
        state = "ok" if agent is None else agent.memory.state
        return f"{notes} + {provider}{'' if state == 'ok' else f' ({state})'}"

    async def _take_news(self, agent: Agent) -> AsyncIterator[TurnEvent]:
        """Yield the notices due before a turn, each once."""
        self.pending_events += await self._take_new_notes()
        while self.pending_events:
            yield self.pending_events.pop(0)
        if self.agents.memory.provider is not None and not self._announced_default:
            self._announced_default = True
            notice = await take_default_notice(self.app, self.store)
            for line in [] if notice is None else [notice, *await read_remarks(self.app, self.store)]:
                yield Notice(line)
        if agent.answers_from_memory and not self._announced_offline:
            self._announced_offline = True
            yield Notice(assembly.FLOOR_NOTICE)

    async def _take_new_notes(self) -> list[MemoryUpdated]:
        """Return notes that background reviews stored about the owner and that were not announced yet. Returns none
        while the store is read-only."""
        if not self._announces_notes:
            return []
        try:
            return await self.store.take_remarks(OWNER)
        except StoreError as error:
            log.warning("cannot announce new notes yet: %s", error.line())
            return []

    def _take_model_notice(self, agent: Agent) -> str:
        """Return the notice that the model was picked automatically, once per new session; "" until known."""
        offer = self.agents.offer
        if offer is None or not self._may_announce_model or agent.model is not agent.configured_model:
            return ""
        self._may_announce_model = not offer.remark
        return offer.remark


def find_live(store: Store, tx: Tx, name: str) -> Session:
    """Return the session called `name`, or its newest continuation after compression."""
    return store.sessions.get(tx, store.sessions.live_id(tx, store.sessions.find(tx, name).id))
