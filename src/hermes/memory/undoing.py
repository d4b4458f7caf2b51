"""Retracts from memory the messages that a person undid, in the commit of the undo.

    queued, never tried         ──> withdrawn: the provider never receives it
    delivered, or may have been ──> an `undo` entry, after all that was recorded before it

The entry is an outbox row like any other, so it survives a kill of the process.
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

TOOL_CALL_PREFIX = "call-"
"""The prefix of keys of entries that a provider's tool made during a call by the model."""
TURN_TICKET_PREFIXES = (f"own:{TOOL_CALL_PREFIX}", "delegation:")
"""The ticket prefixes of a turn's entries other than messages."""


class Retraction(Struct, frozen=True):
    """The retraction at one provider. `stays` means that it received something and accepts no `undo` entries."""

    provider: str
    withdrawn: int
    queued: tuple[QueuedWish, ...] = ()
    stays: bool = False


def new_call_key() -> str:
    """Return a unique key for one call of a provider's tool."""
    return f"{TOOL_CALL_PREFIX}{secrets.token_hex(16)}"


def retract(tx: Tx, cause: str, messages: Sequence[Message], since: float, *, now: float) -> list[Retraction]:
    """Retract these messages from all providers, and the entries of tools and sub-agents since then, once for each
    `cause`."""
    session_id, ids = messages[0].session_id, [message.id for message in messages]
    providers = sorted({*providers_of(tx, session_id), *(name for name, _ in told_among(tx, ids))})
    found = [_retract_from(tx, provider, cause, messages, since, now) for provider in providers]
    return [one for one in found if one.withdrawn or one.queued or one.stays]


def _retract_from(
    tx: Tx, provider: str, cause: str, messages: Sequence[Message], since: float, now: float
) -> Retraction:
    name, session_id = queue_name(provider), messages[0].session_id
    sent = [item for item in _entries(tx, name, messages) if item.payload is not None]
    made = [
        item
        for ticket in TURN_TICKET_PREFIXES
        for item in made_since(tx, name, session_id, ticket, since)
        if item.payload
    ]
    gone = withdraw(tx, [*sent, *made])
    unmark_told(tx, provider, [item.payload["message"] for item in gone if "message" in item.payload])
    begun = [item for item in sent if item not in gone and item.state != "done"]
    drop(tx, [item.id for item in begun])
    known = {message for whose, message in told_among(tx, [one.id for one in messages]) if whose == provider}
    times = [message.timestamp for message in messages if message.id in known]
    tickets = [item.key for item in made if item not in gone]
    if not (times or tickets):
        return Retraction(provider, len(gone))
    mark_forgotten(tx, provider, now=now)
    place = find_place(tx, provider, session_id)
    if place is None or place.address is None or "undo" not in place.address["wants"]:
        return Retraction(provider, len(gone), stays=True)
    data = {"session_id": session_id, "times": times, "entries": tickets, "may_arrive": may_arrive(begun)}
    return Retraction(provider, len(gone), enqueue_wish(tx, provider, place, "undo", cause, data, now=now))


def _entries(tx: Tx, name: str, messages: Sequence[Message]) -> Iterator[Item]:
    """Yield the rows of these messages."""
    for message in messages:
        item = find(tx, name, f"{'said' if message.role == 'user' else 'reply'}:{message.id}")
        if item is not None:
            yield item


def describe_undo(tx: Tx, name: str, data: Json) -> Json:
    """Return the data of an `undo` entry for the provider, with the delivered state of the entries that it names."""
    items = [find(tx, name, ticket) for ticket in data["entries"]]
    entries = [
        {"kind": item.payload["kind"], "data": item.payload["data"], "note": item.reason}
        for item in items
        if item is not None and item.payload is not None and item.state == "done"
    ]
    return {**data, "entries": entries}
