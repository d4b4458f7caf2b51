"""Where a conversation is written as it goes on, and read back for the next request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hermes.agent.context import build_context
from hermes.agent.lane import Lane
from hermes.db.engine import Tx
from hermes.store.store import Store
from hermes.types import Draft, Json, LiveView, Message


class Transcript(Protocol):
    """What the loop between model and tools reads and writes."""

    async def request(self) -> list[dict[str, Json]]:
        """The messages of the next request."""
        ...

    async def add(self, *drafts: Draft) -> list[Message]:
        """Record what was said. When this returns it cannot get lost."""
        ...


class StoredTranscript:
    """A session's own transcript: committed to the store, and refused once the lane was lost to another process."""

    def __init__(self, store: Store, lane: Lane, system_prompt: str, recalled: str) -> None:
        self._store = store
        self._lane = lane
        self._system_prompt = system_prompt
        self._recalled = recalled

    async def request(self) -> list[dict[str, Json]]:
        view = await self._store.view(self._lane.session_id)
        return build_context(self._system_prompt, view, self._recalled)

    async def add(self, *drafts: Draft) -> list[Message]:
        def append(tx: Tx) -> list[Message]:
            self._lane.check(tx)
            return self._store.messages.append(tx, self._lane.session_id, drafts, now=self._store.clock.now())

        return await self._store.write(append)


class ScratchTranscript:
    """A temporary agent's transcript: it is gone when the agent is."""

    def __init__(self, system_prompt: str, messages: Sequence[Draft], now: float) -> None:
        self._system_prompt = system_prompt
        self._now = now
        self._messages: list[Message] = []
        self._put(messages)

    async def request(self) -> list[dict[str, Json]]:
        return build_context(self._system_prompt, LiveView("", 0, (), None, tuple(self._messages)))

    async def add(self, *drafts: Draft) -> list[Message]:
        return self._put(drafts)

    def _put(self, drafts: Sequence[Draft]) -> list[Message]:
        first = len(self._messages) + 1
        added = [
            Message(
                id=first + place,
                session_id="",
                role=draft.role,
                content=draft.content,
                timestamp=self._now,
                tool_calls=draft.tool_calls,
                tool_call_id=draft.tool_call_id,
                tool_name=draft.tool_name,
            )
            for place, draft in enumerate(drafts)
        ]
        self._messages += added
        return added
