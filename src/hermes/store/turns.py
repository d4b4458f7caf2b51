"""A turn in the store: the new messages, the view for each model request, and the messages added up to the reply.

Opening the turn, each batch added on the way, and the reply are one transaction each. The first also takes the
session's lane, the last releases it. The callbacks of the memory and of `TurnRecord` run inside these transactions, so
that their writes are committed with the turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.scope import Scope
from hermes.store.corrections import Correction, corrections_of
from hermes.store.held_lease import Entered, Step
from hermes.store.hidden import INCOGNITO, hide_rows
from hermes.store.reviews import mark_due
from hermes.store.session_settings import (
    ChosenModel,
    KeptProjectFile,
    chosen_model,
    mark_title_due,
    project_file_of,
    prompt_made_of,
    set_prompt_made_of,
)
from hermes.store.store import Store
from hermes.store.usage import add_usage
from hermes.types import Draft, LiveView, Message, Session, Spent


class TurnRecord(Protocol):
    """Callbacks for the caller of a turn (the gateway's inbox, /retry), run in the transactions that open and end
    it."""

    @property
    def reminder(self) -> str:
        """A note for the model, put right after the person's messages in every request of this turn. Never stored."""

    @property
    def earlier(self) -> Sequence[tuple[str, str]]:
        """Role and text of messages that the model sees before the session's own in this turn. Never stored."""

    def accepted(self, tx: Tx, messages: Sequence[Message]) -> Sequence[Message]:
        """Called in the transaction that stores the new messages. Returns all messages that the turn answers, including
        those stored before."""

    async def concluding(self) -> None:
        """Called when the reply is complete and about to be stored."""

    def replied(self, tx: Tx, message: Message) -> None:
        """Called in the transaction that stores the reply."""


class NoRecord:
    """Callbacks that do nothing, for callers that need none."""

    reminder = ""
    earlier: Sequence[tuple[str, str]] = ()

    def accepted(self, tx: Tx, messages: Sequence[Message]) -> Sequence[Message]:  # noqa: ARG002 - the shape
        return messages

    async def concluding(self) -> None:
        pass

    def replied(self, tx: Tx, message: Message) -> None:
        pass


class TurnMemory(Protocol):
    """Callbacks of a conversation's memory, for messages that may be remembered."""

    def said(self, tx: Tx, messages: Sequence[Message]) -> None:
        """Called in the transaction that stores the new messages."""

    def replied(self, tx: Tx, message: Message) -> None:
        """Called in the transaction that stores a reply, or a partial one."""


class TurnOpening(Struct, frozen=True):
    """The start of a turn: the messages that it answers, and the stored state of its session."""

    messages: tuple[Message, ...]
    session: Session
    incognito: bool
    prompt_made_of: str | None
    """Fingerprint of what the stored system prompt was built from; None without a prompt, or for another program's."""
    model: ChosenModel | None
    corrections: tuple[Correction, ...]
    """Corrections and forgotten facts of the session's scope."""
    reminder: str
    """See `TurnRecord`."""
    project: KeptProjectFile | None
    earlier: Sequence[tuple[str, str]] = ()
    """See `TurnRecord`."""


def opening(
    store: Store, session_id: str, said: Sequence[Draft], scope: Scope, memory: TurnMemory, record: TurnRecord
) -> Step[TurnOpening]:
    """Return the step that stores the new messages. Once its transaction is committed, they are durable."""

    def open_turn(tx: Tx, now: float) -> TurnOpening:
        stored = store.messages.append(tx, session_id, said, now=now)
        messages = tuple(record.accepted(tx, stored))
        session = store.sessions.get(tx, session_id)
        known = store.incognito.remembered(tx, messages)
        incognito = len(known) < len(messages) or store.incognito.is_on(tx, session_id)
        if not incognito:
            memory.said(tx, messages)
        made, model = prompt_made_of(tx, session_id), chosen_model(tx, session_id)
        corrections = tuple(corrections_of(tx, scope))
        project = project_file_of(tx, session_id)
        told = (record.reminder, project, record.earlier)
        return TurnOpening(messages, session, incognito, made, model, corrections, *told)

    return open_turn


class StoredTurn:
    """A turn that holds its session's lane. Writing raises StaleError once another process has taken the lane.

    The turn reads its session once, and for later requests only new messages: while it holds the lane, nobody else
    writes in the session. If another program adds a message anyway, the next request includes it.
    """

    def __init__(self, store: Store, entered: Entered[TurnOpening], memory: TurnMemory, record: TurnRecord) -> None:
        self.opening = entered.begun
        self._store = store
        self._lane = entered.lane
        self._memory = memory
        self._record = record
        self._view: LiveView | None = None

    async def view(self) -> LiveView:
        """Return what the model sees of the session now."""
        store, seen, session_id = self._store, self._view, self._lane.session_id
        self._view = await (store.view(session_id) if seen is None else store.view_since(seen))
        return self._view

    async def keep_prompt(self, prompt: str, made_of: str) -> None:
        """Store the system prompt and its parts' fingerprint: later turns, also after a restart, use it unchanged."""

        def keep(tx: Tx, _: float) -> None:
            self._store.sessions.set_system_prompt(tx, self._lane.session_id, prompt)
            set_prompt_made_of(tx, self._lane.session_id, made_of)

        await self._lane.write(self._store, keep)

    async def add(self, drafts: Sequence[Draft], spent: Mapping[str, Spent]) -> list[Message]:
        """Store tool calls, tool results and partial replies, and add their tokens to the session's usage."""

        def append(tx: Tx, now: float) -> list[Message]:
            add_usage(tx, self._lane.session_id, spent, now=now)
            added = self._store.messages.append(tx, self._lane.session_id, drafts, now=now)
            for message in added:
                if self.opening.incognito or (message.role == "assistant" and message.finish_reason == "stopped"):
                    self._remember(tx, message)
            return added

        return await self._lane.write(self._store, append)

    async def conclude(
        self, reply: Draft, spent: Mapping[str, Spent], *, review_due: bool, title_due: bool = False
    ) -> Message:
        """Store the reply that ends the turn, and release the lane in the same transaction. `review_due` queues the
        session for the background review, `title_due` for an automatic title."""

        def append(tx: Tx, now: float) -> Message:
            add_usage(tx, self._lane.session_id, spent, now=now)
            [message] = self._store.messages.append(tx, self._lane.session_id, [reply], now=now)
            self._record.replied(tx, message)
            self._remember(tx, message)
            if review_due:
                mark_due(tx, self._lane.session_id, now=now)
            if title_due and not self.opening.incognito:
                mark_title_due(tx, self.opening.session, now=now)
            return message

        await self._record.concluding()
        return await self._lane.write(self._store, append, last=True)

    def _remember(self, tx: Tx, message: Message) -> None:
        """Pass a reply to memory. In an incognito turn, mark it as incognito instead, even if memory is on again by
        now."""
        if self.opening.incognito:
            hide_rows(tx, [message.id], INCOGNITO, now=message.timestamp, hidden_from="memory")
        else:
            self._memory.replied(tx, message)
