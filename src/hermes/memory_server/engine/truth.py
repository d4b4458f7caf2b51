"""Truth over time: which conclusions a later one changed or contradicts. Nothing is overwritten.

A pair is found when a conclusion is stored, by the claims of both (`hermes.ranking.claims`), within one collection.
The table `supersessions` has the pairs; `superseded_by` and `valid_until` of the older conclusion are updated in the
same transaction.

Tombstones keep deleted conclusions about a peer from coming back: a hash of the letters is stored, never the words.

The hash uses a key from a separate file in the data folder, so that the database alone does not let anybody test
sentences. A statement made again after the deletion may be concluded again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

from sqlalchemy import BindParameter, CompoundSelect, and_, bindparam, delete, func, or_, select, union_all, update

from hermes.memory_server import times
from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.statements import PreparedForList, PreparedStatement, in_parts, inserting_new, upsert
from hermes.memory_server.db.tables import (
    claims,
    collections,
    conclusion_messages,
    conclusions,
    message_vectors,
    supersessions,
    tombstones,
)
from hermes.memory_server.faults import Missing
from hermes.memory_server.ids import new_id
from hermes.ranking.changes import names_change
from hermes.ranking.claims import (
    CORRECTS,
    ENDABLE,
    LEFT,
    AttributeClaim,
    changes_value,
    compare,
    corrects,
    is_change,
    read_claims,
)
from hermes.ranking.relative_times import resolve
from hermes.ranking.words import split_speaker

LIVE = and_(conclusions.c.deleted_at.is_(None), conclusions.c.retired_at.is_(None))
"""SQL condition: a conclusion is visible. Superseded ones are: they were true once."""
MAX_COMPARED_ROWS = 200
"""The number of newest claims of an attribute, and of newest statements with a value, that are compared."""
MAX_SHOWN_PAIRS = 100
MAX_CORRECTED_STATEMENTS, CORRECTED_MICROSECONDS = 10, 3600 * 1_000_000
"""A correction refers to one of this many preceding statements, within an hour."""
CORRECTION = "correction"
VALUE = "value"
"""The reason of a pair without an attribute: a number, time or date was changed."""
COLUMNS = tuple(
    conclusions.c[name]
    for name in ("id", "collection_id", "content", "digest", "level", "created_at", "happened_at", "superseded_by")
)
ROW = PreparedStatement(select(*COLUMNS).where(conclusions.c.id == bindparam("id"), LIVE))
OF_ATTRIBUTE = PreparedStatement(
    select(*COLUMNS, claims.c.attribute, claims.c.value, claims.c.is_denied)
    .join_from(claims, conclusions, conclusions.c.id == claims.c.conclusion_id)
    .where(claims.c.collection_id == bindparam("collection_id"), claims.c.attribute == bindparam("attribute"), LIVE)
    .order_by(claims.c.conclusion_id.desc())
    .limit(MAX_COMPARED_ROWS)
)
NEWEST = PreparedStatement(
    select(*COLUMNS)
    .where(conclusions.c.collection_id == bindparam("collection_id"), LIVE, conclusions.c.level == "explicit")
    .where(conclusions.c.superseded_by.is_(None))
    .order_by(conclusions.c.id.desc())
    .limit(MAX_COMPARED_ROWS)
)
KEEP_CLAIM = PreparedStatement(inserting_new(claims, *claims.c.keys()))
KEEP_PAIR = PreparedStatement(
    inserting_new(supersessions, "public_id", "older_id", "newer_id", "kind", "why", "created_at")
)
END = PreparedStatement(
    update(conclusions)
    .where(conclusions.c.id == bindparam("older_id"), conclusions.c.superseded_by.is_(None))
    .values(superseded_by=bindparam("newer_id"), valid_until=bindparam("until"))
)
OLDER, NEWER = conclusions.alias("older"), conclusions.alias("newer")
PAIRS = supersessions.join(OLDER, OLDER.c.id == supersessions.c.older_id).join(
    NEWER, NEWER.c.id == supersessions.c.newer_id
)
SAME_TEXTS = and_(
    OLDER.c.collection_id == bindparam("collection_id"),
    OLDER.c.digest == bindparam("older_digest"),
    NEWER.c.digest == bindparam("newer_digest"),
)
UNDONE = PreparedStatement(
    select(supersessions.c.id).select_from(PAIRS).where(SAME_TEXTS, supersessions.c.undone_at.is_not(None)).limit(1)
)


def happened_at(content: str, said_at: int) -> int | None:
    """Return the first day that a statement names relative to its own day, or None."""
    found = resolve(split_speaker(content)[1], times.to_day(said_at))
    return times.from_day(found[0].first) if found else None


def settle(tx: Tx, conclusion_id: int, at: int) -> None:
    """Store a conclusion's claims, and find the pairs that it belongs to."""
    row = ROW.first(tx, id=conclusion_id)
    if row is None or row.level != "explicit":
        return
    own = read_claims(row.content)
    for claim in own:
        values = {"attribute": claim.attribute, "value": claim.value, "is_denied": claim.is_denied}
        KEEP_CLAIM.run(tx, collection_id=row.collection_id, conclusion_id=row.id, **values)
    later: list[tuple[Record, str, str]] = []
    for other, kind, why in _related(tx, row, own):
        if _order(other) < _order(row):
            supersede(tx, other, row, kind, why, at)
        else:
            later.append((other, kind, why))
    if later:
        other, kind, why = min(later, key=lambda found: _order(found[0]))
        supersede(tx, row, other, kind, why, at)


def _related(tx: Tx, row: Record, own: Sequence[AttributeClaim]) -> Iterator[tuple[Record, str, str]]:
    """Yield conclusions that this one changes or is changed by, each once, with the kind and the reason."""
    seen = {row.id}
    for claim in own:
        for other in _claiming_alike(tx, row, claim):
            is_older = _order(other) < _order(row)
            if other.id in seen or other.digest == row.digest or (is_older and other.superseded_by is not None):
                continue
            theirs = AttributeClaim(other.attribute, other.value, bool(other.is_denied))
            older, newer, text = (theirs, claim, row.content) if is_older else (claim, theirs, other.content)
            if (kind := compare(older, newer, is_change=is_change(text))) is not None:
                seen.add(other.id)
                yield other, kind, older.attribute
    if is_change(row.content) or CORRECTS.search(row.content):
        yield from _changed_before(tx, row, seen)


def _changed_before(tx: Tx, row: Record, seen: Set[int]) -> Iterator[tuple[Record, str, str]]:
    """Yield earlier statements with a value that this one changes, or else the last earlier one that it corrects."""
    before = [
        other
        for other in NEWEST.rows(tx, collection_id=row.collection_id)
        if other.id not in seen and other.digest != row.digest and _order(other) < _order(row)
    ]
    is_named = names_change(row.content)
    changed = [other for other in before if is_named and changes_value(other.content, row.content)]
    if changed:
        yield from ((other, "change", VALUE) for other in changed)
        return
    soon = [
        other
        for other in before[:MAX_CORRECTED_STATEMENTS]
        if row.created_at - other.created_at <= CORRECTED_MICROSECONDS
    ]
    corrected = next((other for other in soon if corrects(other.content, row.content)), None)
    if corrected is not None and len(seen) == 1:
        yield corrected, "change", CORRECTION


def _claiming_alike(tx: Tx, row: Record, claim: AttributeClaim) -> Iterator[Record]:
    alike = [claim.attribute]
    if claim.kind == LEFT:
        alike = sorted(ENDABLE)
    elif claim.attribute in ENDABLE:
        alike.append(LEFT)
    for attribute in alike:
        yield from OF_ATTRIBUTE.rows(tx, collection_id=row.collection_id, attribute=attribute)


def _order(row: Record) -> tuple[int, int]:
    return row.created_at, row.id


def valid_from(row: Record) -> int:
    """Return the time from which a conclusion is valid."""
    return int(row.created_at if row.happened_at is None else row.happened_at)


def supersede(tx: Tx, older: Record, newer: Record, kind: str, why: str, at: int) -> None:
    """Store a pair, unless a person undid it for these two texts. A change ends the older conclusion."""
    same = {"older_digest": older.digest, "newer_digest": newer.digest, "collection_id": older.collection_id}
    if UNDONE.first(tx, **same) is not None:
        return
    KEEP_PAIR.run(tx, public_id=new_id(), older_id=older.id, newer_id=newer.id, kind=kind, why=why, created_at=at)
    if kind == "change":
        until = max(valid_from(newer), valid_from(older))
        END.run(tx, older_id=older.id, newer_id=newer.id, until=until)


def import_pair(tx: Tx, workspace_id: int, newer_id: int, given: JsonMap) -> None:
    """Store a pair of an export, given the older conclusion's public id."""
    known = (conclusions.c.public_id == given["id"], conclusions.c.workspace_id == workspace_id)
    older, newer = tx.execute(select(*COLUMNS).where(*known)).first(), ROW.first(tx, id=newer_id)
    if older is None or newer is None or older.collection_id != newer.collection_id:
        return
    supersede(tx, older, newer, given["kind"], given["why"], given["created_at"])
    if given["undone_at"] is not None:
        own = (supersessions.c.older_id == older.id, supersessions.c.newer_id == newer.id)
        tx.execute(update(supersessions).where(*own).values(undone_at=given["undone_at"]))
        _reinstate(tx, [older.id])


def release(tx: Tx, ids: Sequence[int], at: int) -> None:
    """Delete the pairs and claims of conclusions that are deleted or hidden. Conclusions that they superseded become
    current again, or are superseded by others.
    """
    freed: list[int] = []
    for part in in_parts(ids):
        ended = (conclusions.c.superseded_by.in_(part), conclusions.c.id.not_in(part))
        freed += tx.execute(select(conclusions.c.id).where(*ended)).scalars()
        tx.execute(delete(claims).where(claims.c.conclusion_id.in_(part)))
        sides = or_(supersessions.c.older_id.in_(part), supersessions.c.newer_id.in_(part))
        tx.execute(delete(supersessions).where(sides))
    _reinstate(tx, freed)
    for conclusion_id in freed:
        settle(tx, conclusion_id, at)


def _reinstate(tx: Tx, ids: Sequence[int]) -> None:
    for part in in_parts(ids):
        free = {"superseded_by": None, "valid_until": None}
        tx.execute(update(conclusions).where(conclusions.c.id.in_(part)).values(free))


def undo_supersession(tx: Tx, workspace_id: int, public_id: str, at: int) -> Record:
    """Undo a pair for good, so that both sides are current. Undoing twice is allowed."""
    found = get_pair(tx, workspace_id, public_id)
    if found.undone_at is not None:
        return found
    same = select(supersessions.c.id, supersessions.c.older_id).select_from(PAIRS).where(SAME_TEXTS)
    texts = {"older_digest": found.older_digest, "newer_digest": found.newer_digest}
    pairs = tx.execute(same, {"collection_id": found.collection_id, **texts}).all()
    tx.execute(update(supersessions).where(supersessions.c.id.in_([row.id for row in pairs])).values(undone_at=at))
    freed = [row.older_id for row in pairs]
    _reinstate(tx, freed)
    for conclusion_id in freed:
        settle(tx, conclusion_id, at)
    return get_pair(tx, workspace_id, public_id)


def _select_contradicting(ids: Sequence[BindParameter[int]]) -> CompoundSelect[Any]:
    stands = and_(supersessions.c.kind == "contradiction", supersessions.c.undone_at.is_(None))
    sides = (supersessions.c.older_id, supersessions.c.newer_id)
    return union_all(
        *(
            select(supersessions.c.id, own.label("own"), other.label("other")).where(own.in_(ids), stands)
            for own, other in (sides, sides[::-1])
        )
    )


CONTRADICTING = PreparedForList(_select_contradicting, at_once=50)


def contradictions(tx: Tx, ids: Sequence[int]) -> dict[int, list[int]]:
    """Return, by conclusion id, the other current conclusions that contradict it."""
    found: dict[int, list[int]] = {}
    for row in sorted(CONTRADICTING.rows(tx, ids), key=lambda row: row.id):
        found.setdefault(row.own, []).append(row.other)
    return found


MAX_CHANGED_MESSAGES = 50
"""As many as a turn asks evidence for."""
OF_OLDER, OF_NEWER = conclusion_messages.alias("of_older"), conclusion_messages.alias("of_newer")
NEWER_VECTOR = message_vectors.alias("newer_vector")
MESSAGE_KEYS = [f"id{number}" for number in range(MAX_CHANGED_MESSAGES)]
CHANGED_MESSAGES = PreparedStatement(
    select(
        OF_OLDER.c.message_id.label("older"),
        OF_NEWER.c.message_id.label("newer"),
        conclusions.c.content,
        NEWER.c.content.label("newer_content"),
        NEWER.c.created_at.label("newer_said_at"),
        NEWER.c.standing.label("newer_standing"),
        NEWER_VECTOR.c.traits.label("newer_traits"),
    )
    .join_from(OF_OLDER, conclusions, conclusions.c.id == OF_OLDER.c.conclusion_id)
    .join(NEWER, NEWER.c.id == conclusions.c.superseded_by)
    .join(OF_NEWER, OF_NEWER.c.conclusion_id == NEWER.c.id)
    .join(
        NEWER_VECTOR,
        and_(
            NEWER_VECTOR.c.workspace_id == NEWER.c.workspace_id,
            NEWER_VECTOR.c.message_id == OF_NEWER.c.message_id,
            NEWER_VECTOR.c.piece == 0,
        ),
    )
    .where(OF_OLDER.c.message_id.in_([bindparam(key) for key in MESSAGE_KEYS]), LIVE)
    .order_by(OF_NEWER.c.message_id)
)


def find_changes(tx: Tx, ids: Sequence[int]) -> list[Record]:
    """Return the statements of the first messages that were changed later, each with its message, and the statement
    and message that changed it, the newest of those last.
    """
    some = list(ids[:MAX_CHANGED_MESSAGES])
    if not some:
        return []
    given = dict(zip(MESSAGE_KEYS, some + some[-1:] * (MAX_CHANGED_MESSAGES - len(some)), strict=True))
    return [row for row in CHANGED_MESSAGES.rows(tx, **given) if row.older != row.newer]


SHOWN = select(
    supersessions,
    *(OLDER.c[name].label(f"older_{name}") for name in ("digest", "content", "created_at", "valid_until")),
    *(NEWER.c[name].label(f"newer_{name}") for name in ("digest", "content", "created_at", "happened_at")),
    OLDER.c.public_id.label("older"),
    NEWER.c.public_id.label("newer"),
    OLDER.c.collection_id,
).select_from(PAIRS)


def get_pair(tx: Tx, workspace_id: int, public_id: str) -> Record:
    """Return one pair. Raise Missing if it does not exist."""
    own = (supersessions.c.public_id == public_id, OLDER.c.workspace_id == workspace_id)
    found = tx.execute(SHOWN.where(*own)).first()
    if found is None:
        raise Missing("Supersession", public_id)
    return found


def list_pairs(tx: Tx, conclusion_id: int) -> Sequence[Record]:
    """Return a conclusion's pairs, undone ones included, the oldest first."""
    sides = or_(supersessions.c.older_id == conclusion_id, supersessions.c.newer_id == conclusion_id)
    return tx.execute(SHOWN.where(sides).order_by(supersessions.c.id).limit(MAX_SHOWN_PAIRS)).all()


NO_LETTERS = re.compile(r"[\W_]+")
OBSERVED = PreparedStatement(
    select(collections.c.workspace_id, collections.c.observed_id).where(collections.c.id == bindparam("collection_id"))
)
OF_PEER = select(tombstones.c.deleted_at).where(
    tombstones.c.workspace_id == bindparam("workspace_id"), tombstones.c.observed_id == bindparam("observed_id")
)
ANY = PreparedStatement(OF_PEER.limit(1))
FIND = PreparedStatement(OF_PEER.where(tombstones.c.hash == func.keyed_hash(bindparam("letters"))))


def add_tombstones(tx: Tx, collection_id: int, contents: Iterable[str], at: int) -> None:
    """Store tombstones for conclusions that are being deleted, so that they are not derived again about the same
    peer.
    """
    owner = OBSERVED.first(tx, collection_id=collection_id)
    if owner is None:
        return
    for letters in {_letters(content) for content in contents}:
        row = {"workspace_id": owner.workspace_id, "observed_id": owner.observed_id, "deleted_at": at}
        upsert(tx, tombstones, ("workspace_id", "observed_id", "hash"), {**row, "hash": _hash(tx, letters)})


def find_tombstone_time(tx: Tx, collection_id: int, content: str) -> int | None:
    """Return when a conclusion with these letters was deleted about the collection's peer; None if it never was."""
    owner = OBSERVED.first(tx, collection_id=collection_id)
    if owner is None:
        return None
    own = {"workspace_id": owner.workspace_id, "observed_id": owner.observed_id}
    if ANY.first(tx, **own) is None:
        return None  # most peers have no tombstones
    found = FIND.first(tx, letters=_letters(content), **own)
    return None if found is None else int(found.deleted_at)


def give_tombstones(tx: Tx, workspace_id: int, from_id: int, into_id: int) -> None:
    """Copy the tombstones about one peer to another."""
    own = (tombstones.c.workspace_id == workspace_id, tombstones.c.observed_id == from_id)
    for row in tx.execute(select(tombstones).where(*own)).all():
        moved = {"workspace_id": workspace_id, "observed_id": into_id, "deleted_at": row.deleted_at}
        upsert(tx, tombstones, ("workspace_id", "observed_id", "hash"), {**moved, "hash": row.hash})


def drop_tombstones(tx: Tx, workspace_id: int, observed_id: int) -> None:
    """Delete the tombstones about a peer that is deleted itself."""
    own = (tombstones.c.workspace_id == workspace_id, tombstones.c.observed_id == observed_id)
    tx.execute(delete(tombstones).where(*own))


def _hash(tx: Tx, letters: str) -> str:
    return str(tx.execute(select(func.keyed_hash(letters))).scalar_one())


def _letters(content: str) -> str:
    """Return the text without its speaker, capitals and punctuation."""
    return NO_LETTERS.sub(" ", split_speaker(content)[1].casefold()).strip()
