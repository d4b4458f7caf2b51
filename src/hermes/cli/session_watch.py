"""Watches a terminal's session: messages added elsewhere (a chat, another terminal), tokens used, and how full the
model's context window is."""

from __future__ import annotations

from msgspec import Struct

from hermes.agent.agent import Agent
from hermes.cli.status import Gauge
from hermes.db.engine import Tx
from hermes.errors import NotFoundError, StoreError
from hermes.llm.tokens import view_tokens
from hermes.store.store import Store
from hermes.store.usage import usage_of
from hermes.types import Message, Spent

MAX_OTHERS_MESSAGES = 20
"""Messages of others shown at once. Older ones are counted and left out."""


class OthersMessages(Struct, frozen=True):
    """Messages added elsewhere, oldest first, and how many older ones were left out."""

    messages: tuple[Message, ...] = ()
    left_out: int = 0


class SessionWatch:
    """Tracks which messages of the session the terminal has shown. `look` costs two index lookups if nothing is new."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._session_id: str | None = None
        self._shown = 0
        """Id of the newest message that this terminal has shown."""
        self._measured: tuple[str, int, int] | None = None
        """Session, last message and epoch for which the gauge was computed."""
        self.gauge: Gauge | None = None
        """Tokens used and percentage of the context window; None before the first message, and without a model."""

    async def accepted(self, session_id: str, message_id: int) -> OthersMessages:
        """Record that the user's message was stored. Returns messages added elsewhere before it that were not shown
        yet."""
        found = await self._read(session_id, before=message_id)
        self._shown = max(self._shown, message_id)
        return found

    async def turn_over(self, session_id: str) -> None:
        """Record that the user's turn has ended: its messages, up to the next one by anybody, count as shown."""

        def last_shown(tx: Tx) -> int:
            later = self._store.messages.said_after(tx, session_id, self._shown)
            return later[0] - 1 if later else self._store.messages.last_id(tx, session_id)

        self._shown = max(self._shown, await self._store.read(last_shown))

    async def look(self, agent: Agent | None) -> OthersMessages:
        """Return messages added elsewhere since the last look, and update the gauge if the session has changed.

        Returns nothing if the store cannot be read or the session was deleted: the next message reports the reason.
        """
        if agent is None:
            self._session_id = self.gauge = self._measured = None
            return OthersMessages()
        try:
            found = await self._read(agent.session_id)
            await self._measure(agent)
        except (StoreError, NotFoundError):
            return OthersMessages()
        return found

    async def _read(self, session_id: str, before: int | None = None) -> OthersMessages:
        is_new_here = self._session_id != session_id
        self._session_id = session_id

        def read(tx: Tx) -> tuple[int, list[Message]]:
            last = self._store.messages.last_id(tx, session_id)
            if is_new_here or last <= self._shown:
                return last, []
            return last, self._store.messages.live_after(tx, session_id, self._shown)

        last, found = await self._store.read(read)
        found = [message for message in found if before is None or message.id < before]
        if is_new_here:
            self._shown = last if before is None else before - 1
        elif found:
            self._shown = found[-1].id
        said = [message for message in found if message.role in ("user", "assistant") and message.content]
        return OthersMessages(tuple(said[-MAX_OTHERS_MESSAGES:]), max(0, len(said) - MAX_OTHERS_MESSAGES))

    async def _measure(self, agent: Agent) -> None:
        store, session_id = self._store, agent.session_id

        def state(tx: Tx) -> tuple[str, int, int]:
            return session_id, store.messages.last_id(tx, session_id), store.compressions.epoch(tx, session_id)

        now = await store.read(state)
        if now == self._measured:
            return
        view = await store.view(session_id)
        spent = sum((await store.read(lambda tx: usage_of(tx, session_id))).values(), Spent())
        used = view_tokens(view) + agent.overhead
        percent = round(100 * used / agent.model.context_length)
        tokens = spent.prompt_tokens + spent.completion_tokens
        known = view.messages and not agent.answers_from_memory
        self.gauge = Gauge(tokens, percent, is_estimate=bool(spent.estimated)) if known else None
        self._measured = now
