"""Waiting entries and dead letters of the queues, to be retried or dropped: unsent entries for memory providers,
messages for the agent, and replies for chats."""

from __future__ import annotations

from collections.abc import Collection
from heapq import merge

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.db.queue import FAILED, Item, ItemState
from hermes.db.queue_items import drop as drop_items
from hermes.db.queue_items import get, items, queues, revive
from hermes.errors import NotFoundError
from hermes.gateway.inbox import INBOX
from hermes.gateway.outbound import OUTBOUND
from hermes.memory.forgetting import entry_text
from hermes.memory.outbox import queue_name
from hermes.memory.values import Speaker
from hermes.scope import OWNER
from hermes.store.people import People
from hermes.store.store import Store

ENTRIES_PER_PAGE = 1000
STATES: tuple[ItemState, ...] = ("waiting", "dead")
GATEWAY: Collection[str] = (INBOX, OUTBOUND)


class WaitingEntry(Struct, frozen=True):
    """An entry of a queue. `provider` is the memory provider, or the gateway's queue; entries that the owner may not
    read have no `text`."""

    id: int
    provider: str
    kind: str
    text: str | None
    reason: str
    """The reason of the last failure; "" before the first attempt."""
    at: float
    attempts: int
    session_id: str | None = None


def memory_queues(tx: Tx) -> list[str]:
    """Return the outboxes of all memory providers that were ever used."""
    return queues(tx, queue_name(""))


def all_queues(tx: Tx) -> list[str]:
    """Return the outboxes, and the gateway's queues."""
    return [*memory_queues(tx), *GATEWAY]


def retry_entries(store: Store, tx: Tx, ids: list[int] | None, among: Collection[str] | None = None) -> list[int]:
    """Retry dead letters with these ids, or all. `among` names the queues, by default the memory outboxes."""
    among = memory_queues(tx) if among is None else among
    chosen = _find(tx, ids, ("dead",), among) if ids else _all_dead(tx, among)
    for entry in chosen:
        revive(tx, entry, now=store.clock.now())
    return chosen


def drop_entries(tx: Tx, ids: list[int], among: Collection[str] | None = None) -> list[int]:
    chosen = _find(tx, ids, STATES, memory_queues(tx) if among is None else among)
    drop_items(tx, chosen)
    return chosen


def _all_dead(tx: Tx, among: Collection[str]) -> list[int]:
    found: list[int] = []
    for name in among:
        after = 0
        while page := items(tx, name, "dead", after_id=after, limit=ENTRIES_PER_PAGE):
            found += [item.id for item in page]
            after = page[-1].id
    return found


def _find(tx: Tx, ids: list[int], states: tuple[ItemState, ...], among: Collection[str]) -> list[int]:
    """Return the ids without duplicates. Raises NotFoundError unless all are entries in these states and queues."""
    for entry in ids:
        item = get(tx, entry)
        if item is None or item.queue not in among or item.state not in states:
            which = FAILED if states == ("dead",) else f"waits or {FAILED}"
            raise NotFoundError(
                f"there is no entry {entry} that {which}", hint="`hermes memory outbox list` shows them"
            )
    return list(dict.fromkeys(ids))


def list_entries(
    store: Store, people: People, tx: Tx, state: ItemState, limit: int, *, after: int = 0,
    among: Collection[str] | None = None,
) -> list[WaitingEntry]:  # fmt: skip
    """Return the first entries in a state after the id `after`, the oldest first."""
    names = memory_queues(tx) if among is None else among
    found = merge(*(items(tx, one, state, after_id=after, limit=limit) for one in names), key=lambda item: item.id)
    return [show_entry(store, people, tx, item) for item, _ in zip(found, range(limit), strict=False)]


def find_dead(store: Store, people: People, tx: Tx, entry: int) -> WaitingEntry:
    """Return a dead letter of any queue. Raises NotFoundError."""
    _find(tx, [entry], ("dead",), all_queues(tx))
    item = get(tx, entry)
    assert item is not None, "it was just found"
    return show_entry(store, people, tx, item)


def show_entry(store: Store, people: People, tx: Tx, item: Item) -> WaitingEntry:
    return WaitingEntry(
        item.id,
        item.queue.removeprefix(queue_name("")),
        item.payload.get("kind") or item.queue,
        entry_text(tx, item) if _is_owners(store, people, tx, item) else None,
        item.reason or "",
        item.created_at,
        item.attempts,
        item.session_id,
    )


def _is_owners(store: Store, people: People, tx: Tx, item: Item) -> bool:
    """Return True if an entry belongs to a conversation or the notes of the owner alone."""
    if item.session_id is not None:
        session = store.sessions.look_up(tx, item.session_id)
        return session is not None and people.scope_of(tx, session) == OWNER
    speaker = Speaker.from_json(item.payload.get("speaker"))
    return speaker is not None and speaker.is_owner
