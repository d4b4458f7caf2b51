"""The messages of this home that a fact was learnt from, and what was answered to them: with a fact that is forgotten
both leave memory, for an answer often says the fact again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.db.queue_items import drop, find
from hermes.memory.outbox import queue_name
from hermes.memory.undoing import TakenBack, take_back
from hermes.memory.values import FactSource
from hermes.store.last_turns import split_turns
from hermes.store.store import Store
from hermes.types import Message

PIECE = 1000
"""Characters at the end of a source by which a long message is known that it is a piece of."""


class SourceTurns(Struct, frozen=True):
    """Of one session: the messages that a fact was learnt from, and all that followed each up to the next turn."""

    session_id: str
    said: tuple[int, ...]
    after: tuple[Message, ...]

    @property
    def replies(self) -> list[str]:
        """What was answered, in words."""
        return [one.content for one in self.after if one.role == "assistant" and one.content]


def find_source_turns(store: Store, tx: Tx, sources: Sequence[FactSource]) -> list[SourceTurns]:
    """What these sources are here, session by session."""
    found: dict[str, set[int]] = {}
    for session_id, message in _said(tx, sources):
        found.setdefault(session_id, set()).add(message)
    return [_turns(store, tx, session_id, said) for session_id, said in found.items()]


def leave_out(store: Store, tx: Tx, turns: SourceTurns, provider: str, cause: str, *, now: float) -> list[TakenBack]:
    """Memory does not know of these messages any more, nor is it told of them; a title that was made of them goes. What
    a provider was told of the answers is taken back; it deletes the sources by itself, with the fact."""
    for message in [*turns.said, *(one.id for one in turns.after)]:
        store.incognito.leave_out(tx, turns.session_id, message)
    for message in turns.said:
        waiting = find(tx, queue_name(provider), f"said:{message}")
        drop(tx, [waiting.id] if waiting is not None and waiting.state != "done" else [])
    store.sessions.unmake_title(tx, turns.session_id, min(turns.said), now=now)
    if not turns.after:
        return []
    # What the agent's tools concluded is listed as facts of their own: none of it goes unasked.
    return take_back(tx, f"{cause}:{turns.session_id}", turns.after, float("inf"), now=now)


def _turns(store: Store, tx: Tx, session_id: str, said: set[int]) -> SourceTurns:
    turns = split_turns(list(store.messages.history(tx, session_id)))
    fitting = [turn for turn in turns if not said.isdisjoint(one.id for one in turn.messages)]
    after = tuple(one for turn in fitting for one in turn.after if one.id not in said)
    return SourceTurns(session_id, tuple(sorted(said)), after)


def _said(tx: Tx, sources: Sequence[FactSource]) -> Iterator[tuple[str, int]]:
    """The messages of this home that sources are; a long one may be known to the provider in pieces."""
    for source in sources:
        text = source.text.strip()
        found = tx.execute(
            "SELECT id FROM messages WHERE session_id = ? AND (trim(content) = ? OR (? AND instr(content, ?) > 0))",
            (source.session_id, text, len(text) > PIECE, text[-PIECE:]),
        )
        yield from ((str(source.session_id), int(row["id"])) for row in found.fetchall())
