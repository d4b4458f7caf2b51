"""The messages of this home that a fact was learnt from, and what was answered to them: with a fact that is forgotten
both leave memory, for an answer often says the fact again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.db.queue import Item
from hermes.db.queue_items import drop, find, not_done_before
from hermes.memory.outbox import queue_name
from hermes.memory.undoing import TakenBack, take_back
from hermes.memory.values import FactSource, Notebook, Speaker
from hermes.store.last_turns import split_turns
from hermes.store.store import Store
from hermes.types import Message

LATELY = 3600.0
"""Seconds after its delivery in which a provider may not have read a message yet."""
PIECE = 1000
"""Characters at the end of a source by which a long message is known that it is a piece of."""


class SourceTurns(Struct, frozen=True):
    """Of one session: the messages that a fact was learnt from, and all that followed each up to the next turn."""

    session_id: str
    said: tuple[int, ...]
    after: tuple[Message, ...]
    late: tuple[Message, ...] = ()
    """Those of `said` that the provider may not have read yet."""

    @property
    def replies(self) -> list[str]:
        """What was answered, in words."""
        return [one.content for one in self.after if one.role == "assistant" and one.content]


def find_source_turns(
    store: Store, tx: Tx, sources: Sequence[FactSource], late: Sequence[Message] = ()
) -> list[SourceTurns]:
    """What these sources and `late` messages are here, session by session."""
    found: dict[str, set[int]] = {}
    for session_id, message in [*_said(tx, sources), *((one.session_id, one.id) for one in late)]:
        found.setdefault(session_id, set()).add(message)
    return [_turns(store, tx, session_id, said, late) for session_id, said in found.items()]


def find_late(store: Store, tx: Tx, provider: str, whose: Notebook, fact: str, *, now: float) -> list[Message]:
    """What the person of a notebook said that holds a fact, and that the provider may not have read yet: it waits, was
    put aside, or was delivered a moment ago. It is no source of the fact, which would be read from it later."""
    name, wanted, found = queue_name(provider), " ".join(fact.split()), list[Message]()
    for item in not_done_before(tx, name, "said:", now - LATELY):
        if item.payload is None or not _is_said_by(store, tx, item, whose):
            continue
        message = store.messages.get(tx, item.payload["message"])
        if message is not None and wanted in " ".join((message.content or "").split()):
            found += store.incognito.remembered(tx, message.session_id, [message])
    undone = store.messages.undone_among(tx, [one.id for one in found])
    return [one for one in found if one.id not in undone]


def _is_said_by(store: Store, tx: Tx, item: Item, whose: Notebook) -> bool:
    speaker, person = Speaker.from_json(item.payload["speaker"]), whose.person
    if speaker is None or person is None:
        return False
    if speaker.is_owner or person.is_owner:
        return speaker.is_owner and person.is_owner
    if person.user_id is None or person.user_id != speaker.user_id:
        return False
    session = store.sessions.look_up(tx, item.session_id or "")
    return session is not None and session.source == whose.platform


def leave_out(store: Store, tx: Tx, turns: SourceTurns, provider: str, cause: str, *, now: float) -> list[TakenBack]:
    """Memory does not know of these messages any more, nor is it told of them; a title that was made of them goes. What
    a provider was told of the answers, and of what it may not have read yet, is taken back; it deletes the sources by
    itself, with the fact."""
    for message in [*turns.said, *(one.id for one in turns.after)]:
        store.incognito.leave_out(tx, turns.session_id, message)
    for message in {*turns.said} - {one.id for one in turns.late}:
        waiting = find(tx, queue_name(provider), f"said:{message}")
        drop(tx, [waiting.id] if waiting is not None and waiting.state != "done" else [])
    store.sessions.unmake_title(tx, turns.session_id, min(turns.said), now=now)
    taken = [*turns.late, *turns.after]
    if not taken:
        return []
    # What the agent's tools concluded is listed as facts of their own: none of it goes unasked.
    return take_back(tx, f"{cause}:{turns.session_id}", taken, float("inf"), now=now)


def _turns(store: Store, tx: Tx, session_id: str, said: set[int], late: Sequence[Message]) -> SourceTurns:
    turns = split_turns(list(store.messages.history(tx, session_id)))
    fitting = [turn for turn in turns if not said.isdisjoint(one.id for one in turn.messages)]
    after = tuple(one for turn in fitting for one in turn.after if one.id not in said)
    return SourceTurns(session_id, tuple(sorted(said)), after, tuple(m for m in late if m.session_id == session_id))


def _said(tx: Tx, sources: Sequence[FactSource]) -> Iterator[tuple[str, int]]:
    """The messages of this home that sources are; a long one may be known to the provider in pieces."""
    for source in sources:
        text = source.text.strip()
        found = tx.execute(
            "SELECT id FROM messages WHERE session_id = ? AND (trim(content) = ? OR (? AND instr(content, ?) > 0))",
            (source.session_id, text, len(text) > PIECE, text[-PIECE:]),
        )
        yield from ((str(source.session_id), int(row["id"])) for row in found.fetchall())
