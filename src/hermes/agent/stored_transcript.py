"""A session's own transcript: committed to the store, and kept within the model's window."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hermes.agent.agent import Agent, AgentMemory
from hermes.agent.compress import compress_smaller, make_room, waiting_ends, worth_saying
from hermes.agent.context import build_context
from hermes.agent.loop import Responder
from hermes.agent.review import wants_review
from hermes.agent.titles import wants_title
from hermes.agent.transcript import PreparedRequest
from hermes.store.turns import StoredTurn
from hermes.types import Draft, Json, LiveView, Message, ToolSpec


class Preparation(Struct, frozen=True):
    """What a turn begins with: its prompt, what was recalled for it, who answers, and the memory that hears of it."""

    system_prompt: str
    recalled: str
    speaker: Responder
    memory: AgentMemory


class StoredTranscript:
    """Each message is committed when it is added. Adding raises StaleError once another process has taken the lane."""

    def __init__(self, agent: Agent, turn: StoredTurn, prepared: Preparation) -> None:
        self._agent = agent
        self._turn = turn
        self._prepared = prepared
        self._added = 0

    async def request(self, tools: Sequence[ToolSpec]) -> PreparedRequest:
        until = waiting_ends(self._agent)
        while True:
            view = await self._turn.view()
            messages = self._build(view)
            made = await make_room(self._agent, view, messages, tools, until)
            if made is None:
                return PreparedRequest(self._reminded(messages))
            if made.outcome != "busy":
                return PreparedRequest(self._reminded(self._build(await self._turn.view())), worth_saying(made))

    def _build(self, view: LiveView) -> list[dict[str, Json]]:
        return build_context(self._prepared.system_prompt, view, self._prepared.recalled)

    async def shrink(self) -> bool:
        return await compress_smaller(self._agent)

    def _reminded(self, messages: list[dict[str, Json]]) -> list[dict[str, Json]]:
        """The messages with the record's reminder put in where this turn began: before what the turn has added, and
        never between a tool call and its results."""
        if not self._turn.opening.reminder:
            return messages
        place = max(0, len(messages) - self._added)
        while place < len(messages) and messages[place]["role"] == "tool":
            place += 1
        return [*messages[:place], {"role": "user", "content": self._turn.opening.reminder}, *messages[place:]]

    async def add(self, *drafts: Draft) -> list[Message]:
        added = await self._turn.add(drafts, self._agent.spending.take())
        self._added += len(added)
        return added

    async def conclude(self, reply: Draft) -> Message:
        review_due, title_due = wants_review(self._agent), wants_title(self._agent)
        return await self._turn.conclude(reply, self._agent.spending.take(), review_due=review_due, title_due=title_due)
