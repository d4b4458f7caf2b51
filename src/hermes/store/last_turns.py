"""The turns of a conversation, and retracting the last ones.

A retracted message stays in the file, but no view, list, search, review or memory provider includes it. It gets the
mark that existing files use for a rewind (`active = 0`), so that every program that uses the file agrees. In a file
without that column it is hidden in the way a repair hides rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hermes.db import leases
from hermes.db.engine import Tx
from hermes.errors import UsageError
from hermes.store.compressions import Compressions
from hermes.store.copies import SUMMARY
from hermes.store.hidden import TAKEN_BACK, Undoing, hide_rows, record_undoing, restored_among
from hermes.store.ids import compression_lease
from hermes.store.inbox import settle_undone
from hermes.store.messages import Messages
from hermes.store.schema import TableShape
from hermes.store.sessions import Sessions
from hermes.types import Message

SUMMARISED = "earlier messages are part of a summary, which cannot be undone"


class ConversationTurn(Struct, frozen=True):
    """The messages of people that were sent together, and everything that followed up to the next turn."""

    said: tuple[Message, ...]
    after: tuple[Message, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.said + self.after


class ConversationTurns:
    """The turns of one store. Every method runs inside the caller's transaction."""

    def __init__(self, shape: TableShape, sessions: Sessions, messages: Messages, compressions: Compressions) -> None:
        self._has_mark = "active" in shape.columns
        self._sessions = sessions
        self._messages = messages
        self._compressions = compressions

    def last(self, tx: Tx, session_id: str, count: int = 1) -> list[ConversationTurn]:
        """Return the last turns that the model sees whole, oldest first. Raises UsageError, with the reason, if there
        are fewer."""
        view = self._compressions.view(tx, session_id)
        tail = self._after_summaries(tx, session_id, view.tail)
        turns = split_turns(tail)
        if len(turns) >= count:
            return turns[-count:]
        if view.summary is not None or len(tail) < len(view.tail):
            can = f"only {_number(len(turns))} can" if turns else "nothing can"
            raise UsageError(f"{can} be taken back: {SUMMARISED}", hint="")
        if not turns:
            raise UsageError("nothing was said yet", hint="")
        raise UsageError(f"there {'is' if len(turns) == 1 else 'are'} only {_number(len(turns))} to take back", hint="")

    def _after_summaries(self, tx: Tx, session_id: str, tail: Sequence[Message]) -> Sequence[Message]:
        """Return the messages after the last summary that another version stored as a message, and after its copies."""
        copies = self._messages.copies(tx, session_id)
        summarised = [m.id for m in tail if m.id in copies or SUMMARY.match(m.content or "")]
        return tail if not summarised else [message for message in tail if message.id > summarised[-1]]

    def undo(self, tx: Tx, cause: str, turns: Sequence[ConversationTurn], *, now: float) -> Undoing:
        """Retract turns that `last` returned. Raises UsageError if a summary has covered them since."""
        done = self._take_back(tx, cause, [m for turn in turns for m in turn.messages], len(turns), now)
        self._sessions.unmake_title(tx, done.session_id, done.first_id, now=now)
        return done

    def undo_reply(self, tx: Tx, cause: str, turn: ConversationTurn, *, now: float) -> None:
        """Retract everything that followed the person's messages in the last turn."""
        if turn.after:
            self._take_back(tx, cause, turn.after, 0, now)

    def _take_back(self, tx: Tx, cause: str, messages: Sequence[Message], turns: int, now: float) -> Undoing:
        session_id, ids = messages[0].session_id, [message.id for message in messages]
        latest = self._compressions.latest(tx, session_id)
        if latest is not None and latest.horizon_message_id >= ids[0]:
            raise UsageError(f"nothing can be taken back: {SUMMARISED}", hint="")
        if self._has_mark:
            tx.executemany("UPDATE messages SET active = 0 WHERE id = ?", [(key,) for key in ids])
        hide_rows(tx, restored_among(tx, ids) if self._has_mark else ids, TAKEN_BACK, now=now)
        self._sessions.count_messages(tx, session_id, -len(ids))
        # Never deliver them later, even if another program makes them live again.
        hide_rows(tx, ids, TAKEN_BACK, now=now, hidden_from="providers")
        settle_undone(tx, session_id, ids, now=now)
        # A running compression has read the undone messages: refuse its result.
        leases.revoke(tx, compression_lease(session_id))
        done = Undoing(cause, session_id, ids[0], ids[-1], turns, len(ids), now)
        record_undoing(tx, done)
        return done


def split_turns(messages: Sequence[Message]) -> list[ConversationTurn]:
    """Return messages as turns, in order. User messages of one commit have the same time and form one turn; messages
    before the first user message belong to no turn."""
    turns: list[ConversationTurn] = []
    for message in messages:
        last = turns[-1] if turns else None
        if message.role != "user":
            if last is not None:
                turns[-1] = ConversationTurn(last.said, (*last.after, message))
        elif last is not None and not last.after and last.said[-1].timestamp == message.timestamp:
            turns[-1] = ConversationTurn((*last.said, message))
        else:
            turns.append(ConversationTurn((message,)))
    return turns


def _number(turns: int) -> str:
    return "one turn" if turns == 1 else f"{turns} turns"
