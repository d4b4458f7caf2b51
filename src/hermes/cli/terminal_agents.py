"""The agents of a terminal's sessions. Left sessions are reviewed in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

from msgspec.structs import replace

from hermes import assembly
from hermes.agent.agent import Agent
from hermes.agent.leftovers import LEFTOVERS_INTERVAL_SECONDS, process_leftovers
from hermes.agent.review import review_now, wants_review
from hermes.agent.stopping import unless_stopped
from hermes.app import App
from hermes.db.leases import new_owner
from hermes.errors import ModelError
from hermes.events import TurnEvent
from hermes.llm.model import Model
from hermes.llm.offer import ModelOffer
from hermes.memory.values import Ending
from hermes.owner.memory import OwnMemory
from hermes.settings import CONTEXT_LENGTH
from hermes.store.store import Store
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
