"""Forgetting what holds certain words, as far as the host has it: entries that wait, what was said, records of recall.

What was said stays in its session, where a person can read and delete it; memory does not know of it any more. Notes
are a person's to edit, and known to every turn until then: it is only said which hold the words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.db.queue import Item, ItemState
from hermes.db.queue_items import drop, find_held, get, is_any_tried, items, queues
from hermes.files import read_file
from hermes.home import Home
from hermes.memory.notes import FILES, Notes
from hermes.memory.outbox import queue_name
from hermes.memory.values import Part, Recalled, Wording
from hermes.scope import OWNER
from hermes.store.corrections import drop_corrections
from hermes.store.incognito import is_hidden
from hermes.store.injections import drop_injections
from hermes.store.memory_rows import get_value, set_value
from hermes.store.note_remarks import drop_remarks
from hermes.store.store import Store
from hermes.store.told import told_providers
from hermes.types import Json

PAGE = 1000
STATES: tuple[ItemState, ...] = ("waiting", "dead")
KIND, KEY, REPLIES = "forgotten", "at", "replies"
OLD = "it was fetched before something was forgotten"
WORDS_OF = {"note": ("old",), "correct": ("old",), "delegation": ("task",)}
"""Where the data of an entry has words that people or agents wrote."""
MAY_ARRIVE = 90.0
"""Seconds after an attempt to deliver in which what got no answer may still arrive: as long as a provider may take, and
then its server."""
NO_WORDS = frozenset({"act", "about", "conclusion", "id", "ids", "key"})
"""Names under which an entry of the provider's own has marks and ids; elsewhere it may have words."""


class QueuedEntry(Struct, frozen=True):
    """An entry of a provider's outbox, and what it would tell."""

    id: int
    provider: str
    text: str


class Kept(Struct, frozen=True):
    """What the host has: entries of outboxes, and messages (session, id). `upto` and `queued_upto` are the last message
    and the last entry looked at."""

    entries: tuple[QueuedEntry, ...] = ()
    messages: tuple[tuple[str, int], ...] = ()
    upto: int = 0
    queued_upto: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.entries or self.messages)


class UnderWay(Struct, frozen=True):
    """What of the entries that were dropped may reach the provider all the same: the leases under which some are being
    delivered, and whether some were tried a moment ago and got no answer."""

    held: tuple[Lease, ...] = ()
    was_tried: bool = False


def find_kept(store: Store, tx: Tx, wording: Wording, before: Kept | None = None) -> Kept:
    """What the host has in which these words stand; a message that memory does not know of is left out. What was looked
    at `before` is not read again."""
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
    return Kept(tuple(entries), _known(store, tx, said), upto, queued_upto)


def forget_kept(store: Store, tx: Tx, wording: Wording, before: Kept, *, now: float) -> tuple[Kept, UnderWay]:
    """Drop entries, keep messages out of memory for good, and delete records of recall and remarks that hold the words:
    what was found `before`, and what has come since. All of that, and which of the entries may still arrive."""
    kept = find_kept(store, tx, wording, before)
    dropped = [one.id for one in kept.entries]
    was_tried = is_any_tried(tx, dropped, since=now - MAY_ARRIVE)
    under_way = UnderWay(tuple(find_held(tx, dropped, now=now)), was_tried)
    drop(tx, dropped)
    for session, message in kept.messages:
        store.incognito.leave_out(tx, session, message)
    drop_injections(tx, wording.is_in)
    drop_remarks(tx, wording.is_in)
    drop_corrections(tx, wording.is_in)
    return kept, under_way


def find_told(tx: Tx) -> list[str]:
    """The providers that were told anything, or were to be."""
    prefix = queue_name("")
    return sorted({*told_providers(tx), *(name.removeprefix(prefix) for name in queues(tx, prefix))})


def mark_forgotten(tx: Tx, provider: str, *, now: float) -> None:
    """From now on nothing is recalled that was fetched before."""
    set_value(tx, provider, KIND, KEY, now)


def mark_replies(tx: Tx, provider: str, *, now: float) -> None:
    """Replies that are under way, in any chat, may hold it and stay out of memory. For the owner alone to decide."""
    set_value(tx, provider, KIND, REPLIES, now)


def replies_marked_at(tx: Tx, provider: str) -> float:
    """When replies that were under way were last kept out of memory; 0 for never."""
    return float(get_value(tx, provider, KIND, REPLIES) or 0.0)


def forgotten_at(tx: Tx, provider: str) -> float:
    """When something was last forgotten; 0 for never."""
    return float(get_value(tx, provider, KIND, KEY) or 0.0)


def without_forgotten(recalled: Recalled, since: float) -> Recalled:
    """What was recalled, without what was fetched before something was forgotten. Lines do not say when they were
    fetched: all go then."""
    old = [part for part in recalled.parts if _is_older(part, since)]
    if not old:
        return recalled
    kept = tuple(part for part in recalled.parts if part not in old)
    return Recalled(kept, {**recalled.missed, **{str(part.layer): OLD for part in old}})


def _is_older(part: object, since: float) -> bool:
    """A plugin may give anything."""
    as_of: object = part.as_of if isinstance(part, Part) else None
    return isinstance(as_of, int | float) and as_of < since


def _messages(tx: Tx, after: int) -> Iterator[tuple[str, int, str]]:
    while page := tx.execute(
        "SELECT id, session_id, content FROM messages WHERE id > ? AND content IS NOT NULL ORDER BY id LIMIT ?",
        (after, PAGE),
    ).fetchall():
        for row in page:
            yield str(row["session_id"]), int(row["id"]), str(row["content"])
        after = int(page[-1]["id"])


def _known(store: Store, tx: Tx, said: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Those messages that are there, not incognito, and not taken back."""
    numbers = json.dumps([number for _, number in said])
    rows = tx.execute("SELECT id FROM messages WHERE id IN (SELECT value FROM json_each(?))", (numbers,))
    there = {row["id"] for row in rows} - store.messages.undone_among(tx, [number for _, number in said])
    hidden = {session: store.incognito.ranges(tx, session) for session in {session for session, _ in said}}
    return tuple(one for one in said if one[1] in there and not is_hidden(hidden[one[0]], one[1]))


def _is_queued(tx: Tx, entry: int) -> bool:
    item = get(tx, entry)
    return item is not None and item.state in STATES


def _queued(tx: Tx, behind: int) -> Iterator[Item]:
    """The entries of all outboxes that came after one."""
    for name in queues(tx, queue_name("")):
        for state in STATES:
            after = behind
            while page := items(tx, name, state, after_id=after, limit=PAGE):
                yield from page
                after = page[-1].id


def entry_text(tx: Tx, item: Item) -> str:
    """What an entry would tell: a message, or words of its own."""
    row = tx.execute("SELECT content FROM messages WHERE id = ?", (item.payload.get("message"),)).fetchone()
    said = "" if row is None else row["content"] or ""
    return " ".join(filter(None, (said, *_words_of(item.payload))))


def _words_of(payload: Json) -> Iterator[str]:
    """The words that an entry holds itself: no names of fields, ids or marks."""
    yield payload.get("text") or ""
    data = payload.get("data")
    if payload.get("kind") == "own":
        yield from _strings(data)
    elif isinstance(data, dict):
        yield from _strings([data.get(name) for name in WORDS_OF.get(payload.get("kind"), ())])


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
    elif isinstance(value, dict):
        yield from _strings([one for name, one in value.items() if name not in NO_WORDS and not name.endswith("_id")])


def find_noted(home: Home, wording: Wording) -> list[str]:
    """In words, which notes hold it or cannot be read: the owner's by name, others' by how many they are."""
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
