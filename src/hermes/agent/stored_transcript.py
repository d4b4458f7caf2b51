"""A session's own transcript: committed to the store, and kept within the model's window."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.agent.agent import Agent
from hermes.agent.compress import compress_smaller, compress_to_fit
from hermes.agent.context import build_context
from hermes.agent.lane import Lane
from hermes.agent.transcript import Prepared
from hermes.agent.turn_record import TurnRecord
from hermes.db.engine import Tx
from hermes.llm.tokens import estimate_request
from hermes.types import Draft, Json, LiveView, Message, ToolSpec


class StoredTranscript:
    """What is added is on the disk; once the lane was lost to another process, adding is refused."""

    def __init__(self, agent: Agent, lane: Lane, system_prompt: str, recalled: str, record: TurnRecord) -> None:
        self._agent = agent
        self._store = agent.store
        self._lane = lane
        self._system_prompt = system_prompt
        self._recalled = recalled
        self._record = record
        self._added = 0

    async def request(self, tools: Sequence[ToolSpec]) -> Prepared:
        fitted = await compress_to_fit(self._agent, lambda view: estimate_request(self._build(view), tools))
        return Prepared(self._reminded(self._build(fitted.view)), fitted.notice)

    async def shrink(self) -> bool:
        return await compress_smaller(self._agent)

    def _build(self, view: LiveView) -> list[dict[str, Json]]:
        return build_context(self._system_prompt, view, self._recalled)

    def _reminded(self, messages: list[dict[str, Json]]) -> list[dict[str, Json]]:
        """With the record's reminder where the turn began: before what it has added, and never between a call and its
        results."""
        if not self._record.reminder:
            return messages
        place = max(0, len(messages) - self._added)
        while place < len(messages) and messages[place]["role"] == "tool":
            place += 1
        return [*messages[:place], {"role": "user", "content": self._record.reminder}, *messages[place:]]

    async def add(self, *drafts: Draft) -> list[Message]:
        def append(tx: Tx) -> list[Message]:
            self._lane.check(tx)
            return self._store.messages.append(tx, self._lane.session_id, drafts, now=self._store.clock.now())

        added = await self._store.write(append)
        self._added += len(added)
        return added

    async def conclude(self, reply: Draft) -> Message:
        def append(tx: Tx) -> Message:
            self._lane.check(tx)
            session_id, now = self._lane.session_id, self._store.clock.now()
            [message] = self._store.messages.append(tx, session_id, [reply], now=now)
            self._record.replied(tx, message)
            return message

        await self._record.concluding()
        return await self._store.write(append)
