"""Agents: the one a person talks to, and temporary ones for single tasks.

A temporary agent has no field for a memory provider: it cannot open a provider session, record a turn or advance a
cadence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from hermes.agent.loop import Responder, converse
from hermes.agent.offline import HERE_ALONE, OfflineModel, recollect_nothing
from hermes.agent.tools import Tool
from hermes.agent.transcript import ScratchTranscript
from hermes.clock import Clock
from hermes.errors import StoreError
from hermes.events import Failed, Notice, Replied, TurnEvent
from hermes.llm.discover import ModelOffer
from hermes.llm.metered import Metered, Spending
from hermes.llm.model import Model
from hermes.memory.book import MemoryBook
from hermes.memory.caller import Memory
from hermes.memory.no_memory import NoMemory
from hermes.memory.notes import Notes, NotesRead
from hermes.memory.values import Ending
from hermes.scope import OWNER, Scope
from hermes.store.held_lease import LaneOptions
from hermes.store.session_settings import ChosenModel, chosen_model
from hermes.store.store import Store
from hermes.store.usage import add_usage
from hermes.types import Draft

log = logging.getLogger("hermes.agent")
AgentMemory: TypeAlias = Memory | NoMemory

MEMORY_TOOLS = frozenset({"memory", "session_search", "read_notes"})
"""Built-in tools that read or write data which outlives the conversation."""


class Policy(Struct, frozen=True):
    """The limits and switches of an agent."""

    max_steps: int = 30
    max_calls: int = 32
    max_requests: int = 200
    """Model requests in one turn, including those of its sub-agents."""
    delegate_steps: int = 8
    delegate_deadline: float = 120.0
    tools_off: frozenset[str] = frozenset()
    review_every: int = 6
    review_deadline: float = 60.0
    tells_notes: bool = True
    """Whether a person is notified of what a review notes."""
    titles: Literal["soon", "later", "never"] = "never"
    """When a session without a title gets one: after its first exchange, or later from a process with time for it."""
    compresses_itself: bool = True
    """If False, a session is compressed only on request, or when a request is too long to be sent."""
    compress_at: float = 0.5
    keep_turns: int = 4
    compress_deadline: float = 180.0
    compress_idle: float = 0.0
    lane: LaneOptions = field(default_factory=LaneOptions)


class Agent(Struct):
    """An agent for one session. Release it with `close`."""

    session_id: str
    store: Store
    model: Model
    """The current model: the configured one, unless the session was switched to another."""
    memory: AgentMemory
    notes: Notes
    """The built-in notes. Their scope is that of the agent."""
    soul_file: Path
    owner: str
    policy: Policy
    tools: Callable[[Agent], list[Tool]]
    """Builds the agent's own tools; the provider's are added to them, then the policy is applied."""
    answers_from_memory: bool = False
    """True if no model is configured, so that `OfflineModel` answers."""
    offer: ModelOffer | None = None
    """The models that the session can be switched to; None without a configured model."""
    models: dict[ChosenModel | None, Model] = field(default_factory=dict)
    """Models opened so far, None being the configured one; filled by the first switch."""
    spending: Spending = field(default_factory=Spending)
    """Tokens not yet recorded; the next commit of a turn records them."""
    turns: int = 0
    background: set[asyncio.Task[bool]] = field(default_factory=set)
    overhead: int = 0
    """Tokens of the last request that were not conversation: prompt, tools, recalled text."""
    untold: list[TurnEvent] = field(default_factory=list)
    """Notices about the host, to be sent with the next turn."""
    idle_work: asyncio.Task[None] | None = None
    """Background work that starts after a time without messages; the next turn cancels it."""
    titling: asyncio.Task[None] | None = None
    """The task that makes a title; the next turn cancels it."""
    title_settled: bool = False
    """True if the session has a title, or must not get one."""
    given_title: str | None = None
    """The title that this agent made."""
    note_problems: tuple[str, ...] = ()
    """The notes that could not be read at the last attempt, a line each."""
    opened_book: MemoryBook | None = None

    @property
    def book(self) -> MemoryBook:
        """The contents of memory about this conversation's person, for that person to see and correct."""
        if self.opened_book is None:
            self.opened_book = self.memory.open_book(self.store, self.notes)
        return self.opened_book

    @property
    def clock(self) -> Clock:
        return self.store.clock

    @property
    def scope(self) -> Scope:
        """The people and sessions that the agent's searches, notes, sub-agents, reviews and prompt may cover."""
        return self.notes.scope

    def incognito(self) -> Agent:
        """Return a copy for an incognito turn: it recalls nothing, notes nothing and sends nothing to a provider."""
        return replace(
            self,
            memory=NoMemory(),
            policy=replace(self.policy, tools_off=self.policy.tools_off | MEMORY_TOOLS),
            model=OfflineModel(recollect_nothing, HERE_ALONE) if self.answers_from_memory else self.model,
        )

    @property
    def configured_model(self) -> Model:
        """The model with which the agent was opened."""
        return self.models.get(None, self.model)

    def speak_with(self, chosen: ChosenModel | None) -> None:
        """Switch to a model. None, and a model of another endpoint, mean the configured one."""
        if self.offer is None or (chosen is None and not self.models):
            return
        wanted = chosen if chosen is not None and chosen.endpoint == self.offer.endpoint else None
        self.models.setdefault(None, self.model)
        if wanted is not None and wanted not in self.models:
            self.models[wanted] = Metered(self.offer.open(wanted.name, wanted.context_length), self.spending)
        self.model = self.models[wanted]

    def begin_tool_test(self) -> None:
        """Start the background test of whether the model can use tools."""
        if self.offer is not None and self.offer.tool_use is not None:
            self.offer.tool_use.begin(self.model, self.offer)

    async def may_use_tools(self) -> bool:
        """Return whether the current model is offered tools. A model that fails the test is reported once."""
        if self.offer is None or self.offer.tool_use is None:
            return True
        may = await self.offer.tool_use.settled(self.model, self.offer)
        self.untold += self._tool_notices()
        return may

    def _tool_notices(self) -> list[TurnEvent]:
        if self.offer is None or self.offer.tool_use is None or self.scope != OWNER:
            return []
        return [Notice(line, is_outage=True) for line in self.offer.tool_use.take_notices()]

    async def take_up_choice(self) -> None:
        """Switch to the model that was chosen for the session, before the first turn in this process."""
        self.speak_with(await self.store.read(lambda tx: chosen_model(tx, self.session_id)))

    def read_notes(self) -> NotesRead:
        """Return the notes. A note that cannot be read is reported once; so is the moment when all can be read
        again."""
        read = self.notes.read_all()
        before, self.note_problems = self.note_problems, tuple(problem.line() for problem in read.problems)
        for line in self.note_problems:
            if line not in before:
                log.warning("%s", line)
                self.untold.append(Notice(f"WARNING: answering without a note: {line}", is_outage=True))
        if before and not self.note_problems:
            self.untold.append(Notice("All notes can be read again.", is_outage=True))
        return read

    async def cancel_idle_work(self) -> None:
        """Cancel background work that was waiting for an idle moment."""
        for task in (self.idle_work, self.titling):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        self.idle_work = self.titling = None

    async def close(self, why: Ending = "exit", *, deadline: float = 5.0) -> list[TurnEvent]:
        """End background work, then close memory. The configured model belongs to the caller.

        Returns notices that the person has not seen yet.
        """
        await self.cancel_idle_work()
        if self.background:
            _, late = await asyncio.wait(self.background, timeout=deadline)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        try:
            await self.memory.close(why)
            await self.write_down_spending()
        finally:
            for chosen, model in self.models.items():
                if chosen is not None:
                    await model.close()
        lines = [Notice(line, is_outage=True) for line in self.memory.take_notices()]
        return [*lines, *self.untold, *self._tool_notices()]

    async def write_down_spending(self) -> None:
        """Record the tokens spent since the last commit of a turn. A failure is only logged."""
        if not (spent := self.spending.take()):
            return
        try:
            now = self.store.clock.now()
            await self.store.write(lambda tx: add_usage(tx, self.session_id, spent, now=now))
        except StoreError as error:
            log.warning("what session %s has spent is not counted: %s", self.session_id, error.line())


class TemporaryResult(Struct, frozen=True):
    """The result of a temporary agent. Without a reply, `ok` is False and `text` is the reason."""

    text: str
    ok: bool


class TemporaryAgent(Struct, frozen=True):
    """An agent for a single task. It has a model and tools, but no memory and no store."""

    speaker: Responder
    system_prompt: str

    async def run(
        self, task: str, *, now: float, on_event: Callable[[TurnEvent], None] = lambda _: None
    ) -> TemporaryResult:
        """Work on `task` until there is a reply. `on_event` is called with each event. Cancel the call to stop it."""
        transcript = ScratchTranscript(self.system_prompt, [Draft("user", task)], now)
        async with aclosing(converse(self.speaker, transcript, "", asyncio.Event())) as events:
            async for event in events:
                on_event(event)
        if isinstance(event, Replied):
            return TemporaryResult(event.text, True)
        return TemporaryResult(event.message if isinstance(event, Failed) else "it was stopped", False)
