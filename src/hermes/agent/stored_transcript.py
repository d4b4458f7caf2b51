"""A session's own transcript: committed to the store, and kept within the model's window."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hermes.agent import titles
from hermes.agent.agent import Agent, AgentMemory
from hermes.agent.compress import compress_smaller, make_room, worth_saying
from hermes.agent.context import build_context
from hermes.agent.lane import Lane
from hermes.agent.loop import Responder
from hermes.agent.review import wants_review
from hermes.agent.transcript import PreparedRequest
from hermes.agent.turn_record import TurnRecord
from hermes.compression.cut import view_tokens
from hermes.db.engine import Tx
from hermes.llm.tokens import estimate_request
from hermes.store.reviews import mark_due
from hermes.store.usage import add_usage
from hermes.types import Draft, Json, LiveView, Message, ToolSpec


class Preparation(Struct, frozen=True):
    """What a turn begins with: its prompt, what was recalled for it, who answers, and the memory that hears of it."""

    system_prompt: str
    recalled: str
    speaker: Responder
    memory: AgentMemory


class StoredTranscript:
    """Each message is committed when it is added. Adding raises StaleError once another process has taken the lane.

    The session is read once, and on from there for each request: nobody else speaks in it meanwhile, and what arrives
    all the same is seen.
    """

    def __init__(self, agent: Agent, lane: Lane, prepared: Preparation, record: TurnRecord) -> None:
        self._agent = agent
        self._store = agent.store
        self._lane = lane
        self._prepared = prepared
        self._record = record
        self._view: LiveView | None = None
        self._added = 0

    async def request(self, tools: Sequence[ToolSpec]) -> PreparedRequest:
        until = self._agent.clock.now() + self._agent.policy.compress_deadline
        while True:
            view = await self._read()
            messages = self._build(view)
            made = await make_room(self._agent, view_tokens(view), estimate_request(messages, tools), until)
            if made is None:
                return PreparedRequest(self._reminded(messages))
            if made.outcome != "busy":
                return PreparedRequest(self._reminded(self._build(await self._read())), worth_saying(made))

    async def _read(self) -> LiveView:
        seen = self._view
        self._view = await (self._store.view(self._lane.session_id) if seen is None else self._store.view_since(seen))
        return self._view

    def _build(self, view: LiveView) -> list[dict[str, Json]]:
        return build_context(self._prepared.system_prompt, view, self._prepared.recalled)

    async def shrink(self) -> bool:
        return await compress_smaller(self._agent)

    def _reminded(self, messages: list[dict[str, Json]]) -> list[dict[str, Json]]:
        """The messages with the record's reminder put in where this turn began: before what the turn has added, and
        never between a tool call and its results."""
        if not self._record.reminder:
            return messages
        place = max(0, len(messages) - self._added)
        while place < len(messages) and messages[place]["role"] == "tool":
            place += 1
        return [*messages[:place], {"role": "user", "content": self._record.reminder}, *messages[place:]]

    async def add(self, *drafts: Draft) -> list[Message]:
        spent = self._agent.spending.take()

        def append(tx: Tx) -> list[Message]:
            self._lane.check(tx)
            add_usage(tx, self._lane.session_id, spent)
            added = self._store.messages.append(tx, self._lane.session_id, drafts, now=self._store.clock.now())
            for message in added:
                if message.role == "assistant" and message.finish_reason == "stopped":
                    self._prepared.memory.replied(tx, message)
            return added

        added = await self._store.write(append)
        self._added += len(added)
        return added

    async def conclude(self, reply: Draft) -> Message:
        """Record the reply that ends the turn, and let the lane go with it."""
        spent = self._agent.spending.take()

        def append(tx: Tx) -> Message:
            session_id, now = self._lane.session_id, self._store.clock.now()
            add_usage(tx, session_id, spent)
            [message] = self._store.messages.append(tx, session_id, [reply], now=now)
            self._record.replied(tx, message)
            self._prepared.memory.replied(tx, message)
            if wants_review(self._agent):
                mark_due(tx, session_id, now=now)
            titles.mark_due(tx, self._agent)
            return message

        await self._record.concluding()
        return await self._lane.write_last(self._store, append)
