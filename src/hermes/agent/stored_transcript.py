"""A session's own transcript: committed to the store, and kept within the model's window."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.agent import Agent, AgentMemory
from hermes.agent.compress import compress_smaller, compress_to_fit
from hermes.agent.lane import Lane
from hermes.agent.loop import Speaker
from hermes.agent.rendering import Built, Rendering
from hermes.agent.review import wants_review
from hermes.agent.transcript import Prepared
from hermes.agent.turn_record import TurnRecord
from hermes.db.engine import Tx
from hermes.llm.tokens import estimate_request
from hermes.store.reviews import mark_due
from hermes.store.rewrites import Stamp
from hermes.types import Draft, Json, Message, ToolSpec


class Preparation(Struct, frozen=True):
    """What a turn begins with: its prompt, what was recalled for it, who answers, and the memory that hears of it."""

    system_prompt: str
    recalled: str
    speaker: Speaker
    memory: AgentMemory


class StoredTranscript:
    """Each message is committed when it is added. Adding raises StaleError once another process has taken the lane."""

    def __init__(self, agent: Agent, lane: Lane, prepared: Preparation, record: TurnRecord, stamp: Stamp) -> None:
        """`stamp` is of the turn's beginning or earlier."""
        self._agent = agent
        self._store = agent.store
        self._lane = lane
        self._prepared = prepared
        self._record = record
        self._stamp = stamp
        self._added = 0

    async def request(self, tools: Sequence[ToolSpec]) -> Prepared:
        offered = estimate_request([], tools)

        def build(said: Rendering) -> Built:
            built = said.request(self._prepared.system_prompt, self._prepared.recalled)
            return replace(built, tokens=built.tokens + offered)

        fitted = await compress_to_fit(self._agent, self._read, build)
        return Prepared(self._reminded(fitted.messages), fitted.notice)

    async def shrink(self) -> bool:
        return await compress_smaller(self._agent)

    async def _read(self) -> Rendering:
        return await self._agent.renderings.current(self._store, self._lane.session_id, self._stamp)

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
        def append(tx: Tx) -> list[Message]:
            self._lane.check(tx)
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

        def append(tx: Tx) -> Message:
            session_id, now = self._lane.session_id, self._store.clock.now()
            [message] = self._store.messages.append(tx, session_id, [reply], now=now)
            self._record.replied(tx, message)
            self._prepared.memory.replied(tx, message)
            if wants_review(self._agent):
                mark_due(tx, session_id, now=now)
            return message

        await self._record.concluding()
        return await self._lane.write_last(self._store, append)
