"""What a terminal talks to: one session at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress

from msgspec.structs import replace

from hermes import assembly
from hermes.agent.agent import Agent
from hermes.agent.leftovers import AGAIN, see_to_leftovers
from hermes.agent.prompt import read_soul
from hermes.agent.review import review_now, wants_review
from hermes.agent.stopping import unless_stopped
from hermes.agent.turn import run_turn
from hermes.agent.undo import retry
from hermes.app import App
from hermes.cli.memory_status import read_remarks, take_default_notice
from hermes.cli.output import printable
from hermes.cli.project_file import ProjectFile
from hermes.cli.recap import Recap, recap
from hermes.cli.status import ChatStatus
from hermes.db.engine import Tx
from hermes.db.leases import new_owner
from hermes.errors import ModelError, StoreError
from hermes.events import MemoryUpdated, Notice, TurnEvent
from hermes.llm.model import Model
from hermes.llm.offer import ModelOffer
from hermes.logs import SESSION
from hermes.memory.book import MemoryBook
from hermes.memory.deliveries import Deliveries
from hermes.memory.no_memory import NoMemory
from hermes.memory.registry import NONE
from hermes.memory.values import Ending, Notebook, Speaker
from hermes.scope import OWNER, TERMINAL
from hermes.settings import MEMORY_NOTICES, PROVIDER
from hermes.slash.here import Again, Beginning, Say
from hermes.store.chosen_models import set_chosen_model
from hermes.store.memory_rows import hide_title
from hermes.store.prompts import KeptProjectFile, keep_project_file
from hermes.store.store import Store
from hermes.store.turns import NoRecord
from hermes.types import Session

log = logging.getLogger("hermes.review")

LANES_AT_ONCE = 2
"""Lanes of the memory outbox that a terminal delivers side by side."""
AT_THE_END = 5.0
"""Seconds that a conversation takes at its end to tell memory what it has not been told yet."""


class TerminalConversation:
    """Talks in one session until told to talk in another. A new session is made with its first message."""

    def __init__(self, app: App, store: Store, *, for_one_turn: bool = False) -> None:
        self.app = app
        self.store = store
        self._for_one_turn = for_one_turn
        self._owner = new_owner()
        self._provider = assembly.open_provider(app, store, for_one_turn=for_one_turn)
        self._tells_notes = app.settings.get(MEMORY_NOTICES)
        self._all_told = True
        self._deliveries = None if self._provider is None else Deliveries(self._provider, self._owner, LANES_AT_ONCE)
        self._session: Session | None = None
        self.agent: Agent | None = None
        """Who answers in the session; None before there is one."""
        self._offer = assembly.open_offer(app)
        notes, notebook = assembly.open_notes(app, OWNER), Notebook(Speaker(is_owner=True))
        book = MemoryBook(store, notes, self._provider, notebook, self._start_deliveries)
        self._beginning = Beginning(book, self._offer)
        self.is_incognito = False
        """Whether what is said now stays out of memory."""
        self._is_new = False
        self._said_floor = False
        self._said_default = False
        self._looks_back_at = 0.0
        self._left_before: float | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()
        self.is_hurried = False
        """The person does not wait: `end` leaves to another process what memory was not told."""
        self.project: ProjectFile | None = None
        """The AGENTS.md that sessions which begin here work by."""
        self.untold: list[TurnEvent] = []
        """What was left to say when an agent was closed; the next turn says it, or whoever ends the conversation."""

    @property
    def session_id(self) -> str | None:
        """The session's id, None before the first message."""
        return self._session.id if self._session else None

    @property
    def status(self) -> ChatStatus:
        """Model, session, memory as they are now, or as they will be with the first message."""
        made = self.agent.given_title if self.agent else None
        here = self._session
        session = (here.title or made or here.id) if here else (self._beginning.title or "new")
        return ChatStatus(self._model_name(), printable(session), self._memory_state())

    def _model_name(self) -> str:
        """The one that answers, or will; "" while nobody knows."""
        if self._offer is None:
            return "none"
        if self.agent is not None:
            return self.agent.model.name
        return self._beginning.model.name if self._beginning.model else self._offer.answering

    def ask_for_models(self) -> None:
        """Where no model is named, ask the endpoint for its list, so that `status` names the one that will answer."""
        if self._offer is not None and not self._offer.answering:
            self._in_background(self._ask_for_models(self._offer))

    async def _ask_for_models(self, offer: ModelOffer) -> None:
        with suppress(ModelError):  # the first turn says it
            await unless_stopped(offer.list(), self._ending)

    def _take_remark(self) -> str:
        """What is said once in a new session of a model that nobody chose; "" until there is something to say."""
        agent, offer = self.agent, self._offer
        if agent is None or offer is None or not self._is_new or agent.model is not agent.configured_model:
            return ""
        if remark := offer.remark:
            self._is_new = False
        return remark

    def _memory_state(self) -> str:
        provider, agent = self.app.settings.get(PROVIDER), self.agent
        if self.is_incognito:
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
        await self.look_again()
        await self.prepare()

    async def place(self) -> Agent | Beginning:
        """The agent of this session, or the session that the next message will begin."""
        await self.prepare()
        return self._beginning if self.agent is None else self.agent

    async def look_again(self) -> None:
        """Show title and incognito as they are now: a command may have changed them."""
        self.is_incognito = self._beginning.incognito
        if self._session is not None:
            here = self._session.id
            session, self.is_incognito = await self.store.read(
                lambda tx: (self.store.sessions.look_up(tx, here), self.store.incognito.is_on(tx, here))
            )
            self._session = session or self._session  # the next message finds out that it was deleted

    async def recap(self) -> Recap | None:
        """Which session is gone on with and what was said in it last; None for a new one."""
        return None if self._session is None else await recap(self.store, self._session)

    async def prepare(self) -> None:
        """Make the agent now rather than with the first message, so that a wrong setting shows at once."""
        if self._session is not None and self.agent is None:
            await self._open_agent(assembly.open_speaker(self.app, self._offer), self._session)

    def warm_up(self) -> None:
        """Have memory get ready for the first question. Nobody waits for it; it ends with the conversation."""
        if self._provider is not None:
            self._provider.warm_up()

    async def _agent_of(self, model: Model, session: Session) -> Agent:
        """A guest's or a group's session reaches no further because the owner speaks in it: they read it too."""
        people = assembly.open_people(self.app)
        scope = await self.store.read(lambda tx: people.scope_of(tx, session))
        agent = assembly.open_agent(
            self.app, self.store, model, session, scope, self._owner, self._provider, offer=self._offer
        )
        if self._for_one_turn and agent.policy.titles == "soon":
            agent.policy = replace(agent.policy, titles="later")
        await agent.take_up_choice()
        return agent

    async def _open_agent(self, model: Model, session: Session) -> None:
        self.agent = await self._agent_of(model, session)
        if self.agent.scope == OWNER:
            self.agent.opened_book = self._beginning.book  # numbers that were shown before the first message hold
        self._start_deliveries()

    def _start_deliveries(self) -> None:
        if self._deliveries is not None:
            self._deliveries.start()

    async def leave(self, why: Ending = "new") -> None:
        """The next message begins a new session. The last one is reviewed and closed off everybody's turn."""
        if self.agent is not None and wants_review(self.agent) and self.agent.turns:
            self._in_background(self._look_back(self.agent, why))
        elif self.agent is not None:
            await self._close(self.agent, why)
        self.agent, self._session, self.is_incognito, self._is_new = None, None, False, False
        self._beginning = Beginning(self._beginning.book, self._offer)

    async def end(self, seconds: float = AT_THE_END) -> bool:
        """Close all that is open, and deliver what memory has not been told, for so long. False when something is left.

        What a review has not read yet is read after the next start. Ending twice is fine.
        """
        self._ending.set()
        if self._background:
            await asyncio.wait(self._background)
        memory = self.agent.memory if self.agent is not None else NoMemory()
        if self.agent is not None:
            await self._close(self.agent, "exit")
        self.agent, self._session = None, None
        if self._deliveries is not None and self._provider is not None:
            told, self._all_told = self._all_told, False  # until it is known: the person may not wait for it
            self._all_told = await self._deliveries.finish(0.0 if self.is_hurried else seconds) and told
            await self._provider.close()
        self.untold += [Notice(line, is_outage=True) for line in memory.take_notices()]
        self.untold += await self._take_remarks()
        return self._all_told

    async def _take_remarks(self) -> list[MemoryUpdated]:
        """What reviews have noted of the owner, here or in a chat, and was told nowhere yet. While the store cannot be
        written it waits."""
        if not self._tells_notes:
            return []
        try:
            return await self.store.take_remarks(OWNER)
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
        try:
            self.untold += await agent.close(why)
        finally:  # the end of a conversation may cut it short
            await agent.configured_model.close()

    def _see_to_leftovers(self) -> None:
        """Look after the sessions that were left, now and again."""
        now = asyncio.get_running_loop().time()
        if now >= self._looks_back_at and not self._background:
            self._looks_back_at = now + AGAIN
            self._left_before = self._left_before or self.store.clock.now()
            leftovers = see_to_leftovers(self.store, self._is_left, self._lend, self._left_before)
            self._in_background(unless_stopped(leftovers, self._ending))

    @asynccontextmanager
    async def _lend(self, session: Session) -> AsyncIterator[Agent]:
        agent = await self._agent_of(assembly.open_speaker(self.app, self._offer), session)
        try:
            yield agent
        finally:
            await self._close(agent, "idle")

    def _is_left(self, session: Session) -> bool:
        return session.source == TERMINAL and session.id != self.session_id

    async def take_turn(self, said: Say | Again, stop: asyncio.Event) -> AsyncGenerator[TurnEvent, None]:
        if self._session is None:
            await self._begin()
        await self.prepare()
        assert self.agent is not None, "prepare made it"
        token = SESSION.set(self.agent.session_id)
        try:
            self.untold += await self._take_remarks()
            while self.untold:
                yield self.untold.pop(0)
            for line in await self._news_of_memory():
                yield Notice(line)
            if self.agent.answers_from_memory and not self._said_floor:
                self._said_floor = True
                yield Notice(assembly.FLOOR_NOTICE)
            turn = (
                run_turn(self.agent, said.text, stop)
                if isinstance(said, Say)
                else retry(self.agent, said.cause, stop, NoRecord())
            )
            async with aclosing(turn) as events:
                async for event in events:
                    if remark := self._take_remark():
                        yield Notice(remark)
                    yield event
            if wants_review(self.agent) or self.agent.policy.titles == "soon":
                self._see_to_leftovers()
        finally:
            SESSION.reset(token)

    async def _news_of_memory(self) -> list[str]:
        """What is told once of a memory that is there by default, with what it found and leaves alone."""
        if self._provider is None or self._said_default:
            return []
        self._said_default = True
        notice = await take_default_notice(self.app, self.store)
        return [] if notice is None else [notice, *await read_remarks(self.app, self.store)]

    async def _begin(self) -> None:
        """A new session, once everything that it needs is there: a start that fails leaves nothing behind."""
        read_soul(self.app.home.soul_file)
        model, wanted, project = assembly.open_speaker(self.app, self._offer), self._beginning, self.project
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
        self._session, self._is_new = session, True
        await self._open_agent(model, session)


def find_live(store: Store, tx: Tx, name: str) -> Session:
    """The session a person means, or the one that continues it."""
    return store.sessions.get(tx, store.sessions.live_id(tx, store.sessions.find(tx, name).id))
