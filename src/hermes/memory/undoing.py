"""Taking back what memory was told of messages that a person took back, in the commit that takes them back.

    waits, never tried          ──> withdrawn: the provider was not told
    delivered, or may have been ──> an entry `undo`, behind all that was recorded before it

The entry is a row of the outbox like any other, so a process that is killed right after it takes nothing away.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.db.queue import Item
from hermes.db.queue_items import drop, find, made_since, withdraw
from hermes.memory.forgetting import mark_forgotten
from hermes.memory.outbox import QueuedWish, enqueue_wish, may_arrive, queue_name
from hermes.store.memory_rows import find_place, providers_of
from hermes.store.told import told_among, unmark_told
from hermes.types import Json, Message

BY_TOOL = "call-"
"""How the key of an entry begins that a tool of the provider's put while the model called it."""
OF_TURN = (f"own:{BY_TOOL}", "delegation:")
"""How the tickets begin of what a turn tells beside its messages."""


class TakenBack(Struct, frozen=True):
    """What became of what a provider was told, or was to be told. `stays`: it was told, and takes no wish to undo."""

    provider: str
    withdrawn: int
    queued: tuple[QueuedWish, ...] = ()
    stays: bool = False


def new_call_key() -> str:
    """A key for one call of a provider's tool, unique for ever."""
    return f"{BY_TOOL}{secrets.token_hex(16)}"


def take_back(tx: Tx, cause: str, messages: Sequence[Message], since: float, *, now: float) -> list[TakenBack]:
    """Take back what providers were told of these messages, and of what their tools put and sub-agents did since then,
    once for each `cause`."""
    session_id, ids = messages[0].session_id, [message.id for message in messages]
    providers = sorted({*providers_of(tx, session_id), *(name for name, _ in told_among(tx, ids))})
    found = [_take_back_from(tx, provider, cause, messages, since, now) for provider in providers]
    return [one for one in found if one.withdrawn or one.queued or one.stays]


def _take_back_from(
    tx: Tx, provider: str, cause: str, messages: Sequence[Message], since: float, now: float
) -> TakenBack:
    name, session_id = queue_name(provider), messages[0].session_id
    told = [item for item in _entries(tx, name, messages) if item.payload is not None]
    made = [item for ticket in OF_TURN for item in made_since(tx, name, session_id, ticket, since) if item.payload]
    gone = withdraw(tx, [*told, *made])
    unmark_told(tx, provider, [item.payload["message"] for item in gone if "message" in item.payload])
    begun = [item for item in told if item not in gone and item.state != "done"]
    drop(tx, [item.id for item in begun])
    known = {message for whose, message in told_among(tx, [one.id for one in messages]) if whose == provider}
    times = [message.timestamp for message in messages if message.id in known]
    tickets = [item.key for item in made if item not in gone]
    if not (times or tickets):
        return TakenBack(provider, len(gone))
    mark_forgotten(tx, provider, now=now)
    place = find_place(tx, provider, session_id)
    if place is None or place.address is None or "undo" not in place.address["wants"]:
        return TakenBack(provider, len(gone), stays=True)
    data = {"session_id": session_id, "times": times, "entries": tickets, "may_arrive": may_arrive(begun)}
    return TakenBack(provider, len(gone), enqueue_wish(tx, provider, place, "undo", cause, data, now=now))


def _entries(tx: Tx, name: str, messages: Sequence[Message]) -> Iterator[Item]:
    """The rows in which these messages were told."""
    for message in messages:
        item = find(tx, name, f"{'said' if message.role == 'user' else 'reply'}:{message.id}")
        if item is not None:
            yield item


def describe_undo(tx: Tx, name: str, data: Json) -> Json:
    """What a provider is told with an entry `undo` of its queue: what became of the entries that it names."""
    items = [find(tx, name, ticket) for ticket in data["entries"]]
    entries = [
        {"kind": item.payload["kind"], "data": item.payload["data"], "note": item.reason}
        for item in items
        if item is not None and item.payload is not None and item.state == "done"
    ]
    return {**data, "entries": entries}
