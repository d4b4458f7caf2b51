"""Agents: the one a person talks to, and temporary ones that do a single task.

A temporary agent has no memory provider because its type has no place for one: it can open no provider session, write
no turn and count no cadence.
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
from hermes.llm.metered import Metered, Spending
from hermes.llm.model import Model
from hermes.llm.offer import ModelOffer
from hermes.memory.book import MemoryBook
from hermes.memory.caller import Memory
from hermes.memory.no_memory import NoMemory
from hermes.memory.notes import Notes, NotesRead
from hermes.memory.values import Ending
from hermes.scope import OWNER, Scope
from hermes.store.chosen_models import ChosenModel, chosen_model
from hermes.store.held_lease import LaneTerms
from hermes.store.store import Store
from hermes.store.usage import add_usage
from hermes.types import Draft

log = logging.getLogger("hermes.agent")
AgentMemory: TypeAlias = Memory | NoMemory

MEMORY_TOOLS = frozenset({"memory", "session_search", "read_notes"})
"""Built-in tools that read or write what outlasts a conversation."""


class Policy(Struct, frozen=True):
    """What an agent may do and how far it may go."""

    max_steps: int = 30
    max_calls: int = 32
    max_requests: int = 200
    """Requests to the model in one turn, those of its sub-agents included."""
    delegate_steps: int = 8
    delegate_deadline: float = 120.0
    tools_off: frozenset[str] = frozenset()
    review_every: int = 6
    review_deadline: float = 60.0
    tells_notes: bool = True
    """Whether a person is told of what a review notes."""
    titles: Literal["soon", "later", "never"] = "never"
    """When a session without a title gets one: after its first exchange, or from another process that has the time."""
    compresses_itself: bool = True
    """Else only on request, and when a request could not be sent."""
    compress_at: float = 0.5
    keep_turns: int = 4
    compress_deadline: float = 180.0
    compress_idle: float = 0.0
    lane: LaneTerms = field(default_factory=LaneTerms)


class Agent(Struct):
    """One agent for one session. Close what it holds with `close`."""

    session_id: str
    store: Store
    model: Model
    """The one that answers now: the configured one, unless the session was switched to another."""
    memory: AgentMemory
    notes: Notes
    """Their scope is the agent's."""
    soul_file: Path
    owner: str
    policy: Policy
    tools: Callable[[Agent], list[Tool]]
    """The agent's own tools; the provider's are added to them, then the policy is applied."""
    answers_from_memory: bool = False
    """No model is configured: `OfflineModel` speaks."""
    offer: ModelOffer | None = None
    """What the session can be switched to; None where no model is configured."""
    models: dict[ChosenModel | None, Model] = field(default_factory=dict)
    """Those that have answered, None being the configured one; filled with the first switch."""
    spending: Spending = field(default_factory=Spending)
    """Tokens that are not written down yet; the next commit of a turn does it."""
    turns: int = 0
    background: set[asyncio.Task[bool]] = field(default_factory=set)
    overhead: int = 0
    """Tokens of the last request that were not of the conversation: prompt, tools, what was recalled."""
    untold: list[TurnEvent] = field(default_factory=list)
    """What is to be said of the host; the next turn tells it."""
    idle_work: asyncio.Task[None] | None = None
    """Background work that starts when nobody speaks for a while; the next turn cancels it."""
    titling: asyncio.Task[None] | None = None
    """A title in the making; the next turn cancels it."""
    title_settled: bool = False
    """The session has a title, or shall have none."""
    given_title: str | None = None
    """The title that was made here."""
    note_problems: tuple[str, ...] = ()
    """The notes that could not be read last time, a line for each."""
    opened_book: MemoryBook | None = None

    @property
    def book(self) -> MemoryBook:
        """What memory holds of whose conversation this is, for that person to see and correct."""
        if self.opened_book is None:
            self.opened_book = self.memory.open_book(self.store, self.notes)
        return self.opened_book

    @property
    def clock(self) -> Clock:
        return self.store.clock

    @property
    def scope(self) -> Scope:
        """How far the agent reaches: in what it searches, notes, delegates, reviews and is told at the start."""
        return self.notes.scope

    def incognito(self) -> Agent:
        """The same agent as it speaks in an incognito turn: nothing is recalled, noted, or told to a provider."""
        return replace(
            self,
            memory=NoMemory(),
            policy=replace(self.policy, tools_off=self.policy.tools_off | MEMORY_TOOLS),
            model=OfflineModel(recollect_nothing, HERE_ALONE) if self.answers_from_memory else self.model,
        )

    @property
    def configured_model(self) -> Model:
        """The model that the agent was opened with."""
        return self.models.get(None, self.model)

    def speak_with(self, chosen: ChosenModel | None) -> None:
        """Let this model answer from now on; None for the configured one, as for one of another endpoint."""
        if self.offer is None or (chosen is None and not self.models):
            return
        wanted = chosen if chosen is not None and chosen.endpoint == self.offer.endpoint else None
        self.models.setdefault(None, self.model)
        if wanted is not None and wanted not in self.models:
            self.models[wanted] = Metered(self.offer.open(wanted.name, wanted.context_length), self.spending)
        self.model = self.models[wanted]

    def begin_tool_test(self) -> None:
        """Have it found out, beside everything else, whether the model can use tools."""
        if self.offer is not None and self.offer.tool_use is not None:
            self.offer.tool_use.begin(self.model, self.offer)

    async def may_use_tools(self) -> bool:
        """Whether the model that answers now is offered tools. A model that was found unable is reported once."""
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
        """Speak with the model that the session was switched to, before its first turn here."""
        self.speak_with(await self.store.read(lambda tx: chosen_model(tx, self.session_id)))

    def read_notes(self) -> NotesRead:
        """The notes. A note that cannot be read is reported once, and once more when all can be read again."""
        read = self.notes.read_all()
        before, self.note_problems = self.note_problems, tuple(problem.line() for problem in read.problems)
        for line in self.note_problems:
            if line not in before:
                log.warning("%s", line)
                self.untold.append(Notice(f"WARNING: answering without a note: {line}", is_outage=True))
        if before and not self.note_problems:
            self.untold.append(Notice("All notes can be read again.", is_outage=True))
        return read

    async def be_busy(self) -> None:
        """Cancel the work that was to be done while nobody speaks."""
        for task in (self.idle_work, self.titling):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        self.idle_work = self.titling = None

    async def close(self, why: Ending = "exit", *, deadline: float = 5.0) -> list[TurnEvent]:
        """End background work, then memory. The configured model belongs to whoever opened it.

        Returns what a person has not been told yet.
        """
        await self.be_busy()
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
        """What was spent since the last commit of a turn. It is worth no error."""
        if not (spent := self.spending.take()):
            return
        try:
            now = self.store.clock.now()
            await self.store.write(lambda tx: add_usage(tx, self.session_id, spent, now=now))
        except StoreError as error:
            log.warning("what session %s has spent is not counted: %s", self.session_id, error.line())


class TemporaryResult(Struct, frozen=True):
    """What a temporary agent came to; `ok` is False when there is no reply, and `text` then says why."""

    text: str
    ok: bool


class TemporaryAgent(Struct, frozen=True):
    """Does one task and is gone. It has a model and tools, and nothing that lasts."""

    speaker: Responder
    system_prompt: str

    async def run(
        self, task: str, *, now: float, told: Callable[[TurnEvent], None] = lambda _: None
    ) -> TemporaryResult:
        """Work on `task` until there is a reply. Cancel it to stop it. `told` hears of every event as it happens."""
        transcript = ScratchTranscript(self.system_prompt, [Draft("user", task)], now)
        async with aclosing(converse(self.speaker, transcript, "", asyncio.Event())) as events:
            async for event in events:
                told(event)
        if isinstance(event, Replied):
            return TemporaryResult(event.text, True)
        return TemporaryResult(event.message if isinstance(event, Failed) else "it was stopped", False)
