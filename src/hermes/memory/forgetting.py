"""Forgets everything on the host that contains certain words: queued entries, messages, records of recall.

Messages stay in their session, where a person can read and delete them, but memory no longer uses them. Notes are for
people to edit and stay known until then: only the notes that contain the words are named.

Retracts from memory the messages that a person undid, in the commit of the undo.

    queued, never tried         ──> withdrawn: the provider never receives it
    delivered, or may have been ──> an `undo` entry, after all that was recorded before it

The entry is an outbox row like any other, so it survives a kill of the process.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.db.queue import Item, ItemState
from hermes.db.queue_items import drop, find, find_held, get, is_any_tried, items, made_since, queues, withdraw
from hermes.files import read_file
from hermes.home import Home
from hermes.memory.notes import FILES, Notes
from hermes.memory.outbox import QueuedWish, enqueue_wish, may_arrive, queue_name
from hermes.memory.values import Part, Recalled, Wording
from hermes.scope import OWNER
from hermes.store.corrections import drop_corrections
from hermes.store.hidden import FORGOTTEN, hide_rows
from hermes.store.injections import drop_injections
from hermes.store.memory_rows import find_place, get_value, providers_of, set_value
from hermes.store.reviews import drop_remarks
from hermes.store.store import Store
from hermes.store.synced import synced_among, synced_providers, unmark_synced
from hermes.types import Json, Message

PAGE_ROWS = 1000
UNDELIVERED_STATES: tuple[ItemState, ...] = ("waiting", "dead")
KIND, KEY, REPLIES = "forgotten", "at", "replies"
FETCHED_TOO_EARLY = "fetched before something was forgotten"
FIELDS_WITH_WORDS = {"note": ("old",), "correct": ("old",), "delegation": ("task",)}
"""Fields of an entry's data with words that people or agents wrote, by kind."""
LATE_ARRIVAL_SECONDS = 90.0
"""How long after an attempt an unanswered entry may still arrive: the time limits of provider and server together."""
FIELDS_WITHOUT_WORDS = frozenset({"act", "about", "conclusion", "id", "ids", "key"})
"""Fields of a provider's own entry with marks and ids; other fields may have words."""


class QueuedEntry(Struct, frozen=True):
    """An entry of a provider's outbox, with its words."""

    id: int
    provider: str
    text: str


class Kept(Struct, frozen=True):
    """Matches on the host: outbox entries, and messages (session, id). `upto` and `queued_upto` are the last message
    and entry that were read."""

    entries: tuple[QueuedEntry, ...] = ()
    messages: tuple[tuple[str, int], ...] = ()
    upto: int = 0
    queued_upto: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.entries or self.messages)


class InFlight(Struct, frozen=True):
    """Dropped entries that may still reach the provider: leases of running deliveries, and whether an entry was tried
    recently without an answer."""

    held: tuple[Lease, ...] = ()
    was_tried: bool = False


def find_kept(store: Store, tx: Tx, wording: Wording, before: Kept | None = None) -> Kept:
    """Find everything on the host that contains these words, except messages that memory does not use. Rows read
    `before` are not read again."""
    before = before or Kept()
    said, upto = [*before.messages], before.upto
    for session, upto, text in _messages(tx, before.upto):
        if wording.is_in(text):
            said.append((session, upto))
    entries, queued_upto = [one for one in before.entries if _is_queued(tx, one.id)], before.queued_upto
    for item in _queued(tx, before.queued_upto):
        text, queued_upto = entry_text(tx, item), max(queued_upto, item.id)
        if wording.is_in(text):
            entries.append(QueuedEntry(item.id, item.queue.removeprefix(queue_name("")), text))
    known = store.incognito.known_among(tx, [message for _, message in said])
    return Kept(tuple(entries), tuple(one for one in said if one[1] in known), upto, queued_upto)


def forget_kept(store: Store, tx: Tx, wording: Wording, before: Kept, *, now: float) -> tuple[Kept, InFlight]:
    """Drop matching entries, exclude messages from memory for good, and delete matching records of recall, notices and
    corrections. Covers matches found `before` and rows added since. Return all matches, and the entries that may still
    arrive."""
    kept = find_kept(store, tx, wording, before)
    dropped = [one.id for one in kept.entries]
    was_tried = is_any_tried(tx, dropped, since=now - LATE_ARRIVAL_SECONDS)
    under_way = InFlight(tuple(find_held(tx, dropped, now=now)), was_tried)
    drop(tx, dropped)
    hide_rows(tx, [message for _, message in kept.messages], FORGOTTEN, now=now, hidden_from="memory")
    drop_injections(tx, wording.is_in)
    drop_remarks(tx, wording.is_in)
    drop_corrections(tx, wording.is_in)
    return kept, under_way


def find_synced_providers(tx: Tx) -> list[str]:
    """Return the providers that received anything, or have queued entries."""
    prefix = queue_name("")
    return sorted({*synced_providers(tx), *(name.removeprefix(prefix) for name in queues(tx, prefix))})


def mark_forgotten(tx: Tx, provider: str, *, now: float) -> None:
    """Exclude everything fetched before `now` from recall."""
    set_value(tx, provider, KIND, KEY, now)


def mark_replies(tx: Tx, provider: str, *, now: float) -> None:
    """Keep running replies of all chats out of memory, since they may contain forgotten words. Only the owner may
    cause that."""
    set_value(tx, provider, KIND, REPLIES, now)


class ForgettingEpoch(Struct, frozen=True):
    """When something was last forgotten, and when running replies were last kept out of memory; 0 for never."""

    read_at: float = 0.0
    forgotten_at: float = 0.0
    replies_at: float = 0.0

    @property
    def fetched_since(self) -> float:
        """Text fetched before this time is not recalled."""
        return min(self.forgotten_at, self.read_at)  # the clock may have been ahead when something was forgotten

    @classmethod
    def read(cls, tx: Tx, provider: str, *, now: float) -> ForgettingEpoch:
        forgotten, replies = (float(get_value(tx, provider, KIND, key) or 0.0) for key in (KEY, REPLIES))
        return cls(now, forgotten, replies)


def without_forgotten(recalled: Recalled, since: float) -> Recalled:
    """Return a recall without parts fetched before something was forgotten. Lines have no fetch time, so all of them
    are dropped then."""
    old = [part for part in recalled.parts if _is_older(part, since)]
    if not old:
        return recalled
    kept = tuple(part for part in recalled.parts if part not in old)
    return Recalled(kept, {**recalled.missed, **{str(part.layer): FETCHED_TOO_EARLY for part in old}})


def _is_older(part: object, since: float) -> bool:
    """Return True if a part was fetched too early. A plugin may return anything as a part."""
    as_of: object = part.as_of if isinstance(part, Part) else None
    return isinstance(as_of, int | float) and as_of < since


def _messages(tx: Tx, after: int) -> Iterator[tuple[str, int, str]]:
    while page := tx.execute(
        "SELECT id, session_id, content FROM messages WHERE id > ? AND content IS NOT NULL ORDER BY id LIMIT ?",
        (after, PAGE_ROWS),
    ).fetchall():
        for row in page:
            yield str(row["session_id"]), int(row["id"]), str(row["content"])
        after = int(page[-1]["id"])


def _is_queued(tx: Tx, entry: int) -> bool:
    item = get(tx, entry)
    return item is not None and item.state in UNDELIVERED_STATES


def _queued(tx: Tx, behind: int) -> Iterator[Item]:
    """Yield the undelivered entries of all outboxes after an id."""
    for name in queues(tx, queue_name("")):
        for state in UNDELIVERED_STATES:
            after = behind
            while page := items(tx, name, state, after_id=after, limit=PAGE_ROWS):
                yield from page
                after = page[-1].id


def entry_text(tx: Tx, item: Item) -> str:
    """Return the words that an entry would send: a message, or its own."""
    row = tx.execute("SELECT content FROM messages WHERE id = ?", (item.payload.get("message"),)).fetchone()
    said = "" if row is None else row["content"] or ""
    return " ".join(filter(None, (said, *_words_of(item.payload))))


def _words_of(payload: Json) -> Iterator[str]:
    """Yield an entry's own words, without field names, ids and marks."""
    yield payload.get("text") or ""
    data = payload.get("data")
    if payload.get("kind") == "own":
        yield from _strings(data)
    elif isinstance(data, dict):
        yield from _strings([data.get(name) for name in FIELDS_WITH_WORDS.get(payload.get("kind"), ())])


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
    elif isinstance(value, dict):
        yield from _strings(
            [one for name, one in value.items() if name not in FIELDS_WITHOUT_WORDS and not name.endswith("_id")]
        )


def find_noted(home: Home, wording: Wording) -> list[str]:
    """Describe which notes contain the words or cannot be read: the owner's by name, others by their number."""
    own = Notes(home.path, OWNER, {})
    found = [
        f"{path} {why}: what stands there stays known until you edit it"
        for path, why in _look([*map(own.path, FILES), home.soul_file], wording)
    ]
    people = home.path / "memories" / "people"
    theirs = [path for path, _ in _look((one for name in FILES.values() for one in people.glob(f"*/{name}")), wording)]
    if theirs:
        count = "1 note" if len(theirs) == 1 else f"{len(theirs):,} notes"
        found.append(f"{count} of guests and groups in {people} may hold it, such as {theirs[0].relative_to(people)}")
    return found


def _look(paths: Iterable[Path], wording: Wording) -> Iterator[tuple[Path, str]]:
    for path in paths:
        try:
            text = read_file(path).decode("utf-8-sig", "replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            yield path, f"may hold it and cannot be read ({error.strerror})"
        else:
            if wording.is_in(text):
                yield path, "holds it"


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
    providers = sorted({*providers_of(tx, session_id), *(name for name, _ in synced_among(tx, ids))})
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
    unmark_synced(tx, provider, [item.payload["message"] for item in gone if "message" in item.payload])
    begun = [item for item in sent if item not in gone and item.state != "done"]
    drop(tx, [item.id for item in begun])
    known = {message for whose, message in synced_among(tx, [one.id for one in messages]) if whose == provider}
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
