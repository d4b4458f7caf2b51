"""The messages that a fact was learnt from, and the replies to them. When a fact is forgotten, both leave memory,
since a reply often repeats the fact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.db.queue import Item
from hermes.db.queue_items import drop, find, not_done_before
from hermes.memory.forgetting import Retraction, retract
from hermes.memory.outbox import queue_name
from hermes.memory.values import FactSource, Notebook, Speaker
from hermes.store.hidden import FORGOTTEN, hide_rows
from hermes.store.last_turns import split_turns
from hermes.store.store import Store
from hermes.types import Message

UNREAD_SECONDS = 3600.0
"""A provider may not have read a message until this long after its delivery."""
MIN_PIECE_CHARS = 1000
"""A source of more characters may be a piece of a long message, which is found by this many characters at its end."""


class SourceTurns(Struct, frozen=True):
    """The messages of one session that a fact was learnt from, and everything after each up to the next turn."""

    session_id: str
    said: tuple[int, ...]
    after: tuple[Message, ...]
    late: tuple[Message, ...] = ()
    """The messages of `said` that the provider may not have read yet."""

    @property
    def replies(self) -> list[str]:
        """The texts of the replies."""
        return [one.content for one in self.after if one.role == "assistant" and one.content]


def find_source_turns(
    store: Store, tx: Tx, sources: Sequence[FactSource], late: Sequence[Message] = ()
) -> list[SourceTurns]:
    """Find the turns of these sources and `late` messages, one result per session."""
    found: dict[str, set[int]] = {}
    for session_id, message in [*_find_messages(tx, sources), *((one.session_id, one.id) for one in late)]:
        found.setdefault(session_id, set()).add(message)
    return [_source_turns(store, tx, session_id, said, late) for session_id, said in found.items()]


def find_late(store: Store, tx: Tx, provider: str, whose: Notebook, fact: str, *, now: float) -> list[Message]:
    """Find messages of the notebook's person that contain a fact and that the provider may not have read yet: queued,
    dead, or just delivered. They are not yet sources of the fact, but would become so."""
    name, wanted, found = queue_name(provider), " ".join(fact.split()), list[Message]()
    for item in not_done_before(tx, name, "said:", now - UNREAD_SECONDS):
        if item.payload is None or not _is_said_by(store, tx, item, whose):
            continue
        message = store.messages.get(tx, item.payload["message"])
        if message is not None and wanted in " ".join((message.content or "").split()):
            found.append(message)
    return store.incognito.remembered(tx, found)


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


def exclude_turns(
    store: Store, tx: Tx, turns: SourceTurns, provider: str, cause: str, *, now: float
) -> list[Retraction]:
    """Exclude these messages from memory and drop a title made from them. Sent replies, and messages the provider may
    not have read, are retracted; it deletes the sources itself, with the fact."""
    ids = [*turns.said, *(one.id for one in turns.after)]
    hide_rows(tx, ids, FORGOTTEN, now=now, hidden_from="memory")
    for message in {*turns.said} - {one.id for one in turns.late}:
        waiting = find(tx, queue_name(provider), f"said:{message}")
        drop(tx, [waiting.id] if waiting is not None and waiting.state != "done" else [])
    store.sessions.unmake_title(tx, turns.session_id, min(turns.said), now=now)
    taken = [*turns.late, *turns.after]
    if not taken:
        return []
    # Conclusions of the agent's tools are separate facts: they are not deleted unasked.
    return retract(tx, f"{cause}:{turns.session_id}", taken, float("inf"), now=now)


def _source_turns(store: Store, tx: Tx, session_id: str, said: set[int], late: Sequence[Message]) -> SourceTurns:
    turns = split_turns(list(store.messages.history(tx, session_id)))
    fitting = [turn for turn in turns if not said.isdisjoint(one.id for one in turn.messages)]
    after = tuple(one for turn in fitting for one in turn.after if one.id not in said)
    return SourceTurns(session_id, tuple(sorted(said)), after, tuple(m for m in late if m.session_id == session_id))


def _find_messages(tx: Tx, sources: Sequence[FactSource]) -> Iterator[tuple[str, int]]:
    """Yield the messages that the sources refer to; the provider may know a long one in pieces."""
    for source in sources:
        text = source.text.strip()
        found = tx.execute(
            "SELECT id FROM messages WHERE session_id = ? AND (trim(content) = ? OR (? AND instr(content, ?) > 0))",
            (source.session_id, text, len(text) > MIN_PIECE_CHARS, text[-MIN_PIECE_CHARS:]),
        )
        yield from ((str(source.session_id), int(row["id"])) for row in found.fetchall())
