"""What a memory provider has not been told yet: tried again, or dropped for good."""

from __future__ import annotations

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.db.queue import Item, ItemState
from hermes.db.queue_items import drop as drop_items
from hermes.db.queue_items import get, items, queues, revive
from hermes.errors import NotFoundError
from hermes.memory.forgetting import entry_text
from hermes.memory.outbox import queue_name
from hermes.memory.values import Speaker
from hermes.scope import OWNER
from hermes.store.people import People
from hermes.store.store import Store

PAGE = 1000
STATES: tuple[ItemState, ...] = ("waiting", "dead")


class WaitingEntry(Struct, frozen=True):
    """An entry that a provider has not been told yet. `text` is None where it is not the owner's to read."""

    id: int
    provider: str
    kind: str
    text: str | None
    reason: str
    """Why the last attempt failed; "" before there was one."""


def retry_entries(store: Store, tx: Tx, ids: list[int] | None) -> list[int]:
    chosen = _find(tx, ids, ("dead",)) if ids else _all_dead(tx)
    for entry in chosen:
        revive(tx, entry, now=store.clock.now())
    return chosen


def drop_entries(tx: Tx, ids: list[int]) -> list[int]:
    chosen = _find(tx, ids, STATES)
    drop_items(tx, chosen)
    return chosen


def _all_dead(tx: Tx) -> list[int]:
    found: list[int] = []
    for name in queues(tx, queue_name("")):
        after = 0
        while page := items(tx, name, "dead", after_id=after, limit=PAGE):
            found += [item.id for item in page]
            after = page[-1].id
    return found


def _find(tx: Tx, ids: list[int], states: tuple[ItemState, ...]) -> list[int]:
    """These entries of memory outboxes, each once. Raises NotFoundError, and then nothing is changed."""
    names = set(queues(tx, queue_name("")))
    for entry in ids:
        item = get(tx, entry)
        if item is None or item.queue not in names or item.state not in states:
            which = "put aside" if states == ("dead",) else "waiting or put aside"
            raise NotFoundError(
                f"there is no entry {entry} that is {which}", hint="`hermes memory outbox list` shows them"
            )
    return list(dict.fromkeys(ids))


def list_entries(store: Store, people: People, tx: Tx, state: ItemState, limit: int) -> list[WaitingEntry]:
    """Return the first entries of all outboxes in a state."""
    found = [item for name in queues(tx, queue_name("")) for item in items(tx, name, state, limit=limit)]
    return [
        WaitingEntry(
            one.id,
            one.queue.removeprefix(queue_name("")),
            one.payload["kind"],
            entry_text(tx, one) if _is_owners(store, people, tx, one) else None,
            one.reason or "",
        )
        for one in sorted(found, key=lambda one: one.id)[:limit]
    ]


def _is_owners(store: Store, people: People, tx: Tx, item: Item) -> bool:
    """Return whether an entry is of a conversation or the notes of the owner alone."""
    if item.session_id is not None:
        session = store.sessions.look_up(tx, item.session_id)
        return session is not None and people.scope_of(tx, session) == OWNER
    speaker = Speaker.from_json(item.payload.get("speaker"))
    return speaker is not None and speaker.is_owner
