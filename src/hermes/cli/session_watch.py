"""What goes on in the session at a terminal beside the person's own turns: what others say, and how full it is."""

from __future__ import annotations

from msgspec import Struct

from hermes.agent.agent import Agent
from hermes.cli.status import Gauge
from hermes.db.engine import Tx
from hermes.errors import StoreError
from hermes.llm.tokens import view_tokens
from hermes.store.store import Store
from hermes.store.usage import usage_of
from hermes.types import Message, Spent

MOST = 20
"""Messages of others that are shown at once; of more, the last ones."""


class Overheard(Struct, frozen=True):
    """What others said, oldest first, and how many messages before it are left out."""

    messages: tuple[Message, ...] = ()
    left_out: int = 0


class SessionWatch:
    """Knows which messages of the session were shown here. A look costs one lookup in an index while nothing is new."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._session_id: str | None = None
        self._shown = 0
        self._measured: tuple[str, int, int] | None = None
        self.gauge: Gauge | None = None
        """How much was spent and how full the window is; None before anything was said."""

    async def accepted(self, session_id: str, message_id: int) -> Overheard:
        """The person's own message is stored: what others said between the last one that was shown and this one."""
        found = await self._read(session_id, before=message_id)
        self._shown = max(self._shown, message_id)
        return found

    async def turn_over(self, session_id: str) -> None:
        """The person's own turn has ended: all that is stored of it, up to the next message of anyone, was shown."""

        def last_shown(tx: Tx) -> int:
            later = self._store.messages.said_after(tx, session_id, self._shown)
            return later[0] - 1 if later else self._store.messages.last_id(tx, session_id)

        self._shown = max(self._shown, await self._store.read(last_shown))

    async def look(self, agent: Agent | None) -> Overheard:
        """What others said since the last look; the gauge is read anew where anything has changed.

        While the store cannot be read there is nothing new: whoever speaks next is told why.
        """
        if agent is None:
            self._session_id = self.gauge = self._measured = None
            return Overheard()
        try:
            found = await self._read(agent.session_id)
            await self._measure(agent)
        except StoreError:
            return Overheard()
        return found

    async def _read(self, session_id: str, before: int | None = None) -> Overheard:
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
        return Overheard(tuple(said[-MOST:]), max(0, len(said) - MOST))

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
