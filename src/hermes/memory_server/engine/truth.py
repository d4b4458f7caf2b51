"""Truth over time: which conclusions a later one changed or contradicts. Nothing is overwritten.

A pair is found when a conclusion is stored, by what both claim (`hermes.ranking.claims`), within one collection. The
table `supersessions` has the pairs; `superseded_by` and `valid_until` of the older conclusion follow it, in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

from sqlalchemy import BindParameter, CompoundSelect, and_, bindparam, delete, or_, select, union_all, update

from hermes.memory_server import times
from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.statements import PreparedForList, PreparedStatement, in_parts, inserting_new
from hermes.memory_server.db.tables import claims, conclusion_messages, conclusions, message_vectors, supersessions
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
    split_speaker,
)
from hermes.ranking.relative_times import resolve

LIVE = and_(conclusions.c.deleted_at.is_(None), conclusions.c.retired_at.is_(None))
"""SQL condition: a conclusion is shown. One that was superseded is: it held once."""
COMPARED = 200
"""How many of the newest claims of an attribute, and of the newest statements with a value, are compared."""
PAIRS_SHOWN = 100
CORRECTED, CORRECTED_MICROSECONDS = 10, 3600 * 1_000_000
"""A correction is about one of so many statements before it, within an hour."""
CORRECTION = "correction"
VALUE = "value"
"""Why a pair was found that no attribute has: a number, time or date was changed."""
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
    .limit(COMPARED)
)
NEWEST = PreparedStatement(
    select(*COLUMNS)
    .where(conclusions.c.collection_id == bindparam("collection_id"), LIVE, conclusions.c.level == "explicit")
    .where(conclusions.c.superseded_by.is_(None))
    .order_by(conclusions.c.id.desc())
    .limit(COMPARED)
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
    """Return the first day that a statement names relative to the one on which it was said; None if it names none."""
    found = resolve(split_speaker(content)[1], times.to_day(said_at))
    return times.from_day(found[0].first) if found else None


def settle(tx: Tx, conclusion_id: int, at: int) -> None:
    """Keep what a conclusion claims, and find the pairs that it is a side of."""
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
    """Yield earlier statements of which this one changes a value, or the last one before it that it corrects."""
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
    soon = [other for other in before[:CORRECTED] if row.created_at - other.created_at <= CORRECTED_MICROSECONDS]
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
    """Return since when a conclusion holds."""
    return int(row.created_at if row.happened_at is None else row.happened_at)


def supersede(tx: Tx, older: Record, newer: Record, kind: str, why: str, at: int) -> None:
    """Note a pair, unless a person undid it for these two texts. A change ends the older one."""
    same = {"older_digest": older.digest, "newer_digest": newer.digest, "collection_id": older.collection_id}
    if UNDONE.first(tx, **same) is not None:
        return
    KEEP_PAIR.run(tx, public_id=new_id(), older_id=older.id, newer_id=newer.id, kind=kind, why=why, created_at=at)
    if kind == "change":
        until = max(valid_from(newer), valid_from(older))
        END.run(tx, older_id=older.id, newer_id=newer.id, until=until)


def import_pair(tx: Tx, workspace_id: int, newer_id: int, given: JsonMap) -> None:
    """Note a pair of an export, with the older conclusion by its public id, as it was there."""
    known = (conclusions.c.public_id == given["id"], conclusions.c.workspace_id == workspace_id)
    older, newer = tx.execute(select(*COLUMNS).where(*known)).first(), ROW.first(tx, id=newer_id)
    if older is None or newer is None or older.collection_id != newer.collection_id:
        return
    supersede(tx, older, newer, given["kind"], given["why"], given["created_at"])
    if given["undone_at"] is not None:
        own = (supersessions.c.older_id == older.id, supersessions.c.newer_id == newer.id)
        tx.execute(update(supersessions).where(*own).values(undone_at=given["undone_at"]))
        _hold_again(tx, [older.id])


def release(tx: Tx, ids: Sequence[int], at: int) -> None:
    """Let go of the pairs and claims of conclusions that are gone or hidden: what they superseded holds again, or is
    superseded by another."""
    freed: list[int] = []
    for part in in_parts(ids):
        ended = (conclusions.c.superseded_by.in_(part), conclusions.c.id.not_in(part))
        freed += tx.execute(select(conclusions.c.id).where(*ended)).scalars()
        tx.execute(delete(claims).where(claims.c.conclusion_id.in_(part)))
        sides = or_(supersessions.c.older_id.in_(part), supersessions.c.newer_id.in_(part))
        tx.execute(delete(supersessions).where(sides))
    _hold_again(tx, freed)
    for conclusion_id in freed:
        settle(tx, conclusion_id, at)


def _hold_again(tx: Tx, ids: Sequence[int]) -> None:
    for part in in_parts(ids):
        free = {"superseded_by": None, "valid_until": None}
        tx.execute(update(conclusions).where(conclusions.c.id.in_(part)).values(free))


def undo_supersession(tx: Tx, workspace_id: int, public_id: str, at: int) -> Record:
    """Let both sides of a pair hold, for good. Undoing twice is fine."""
    found = get_pair(tx, workspace_id, public_id)
    if found.undone_at is not None:
        return found
    same = select(supersessions.c.id, supersessions.c.older_id).select_from(PAIRS).where(SAME_TEXTS)
    texts = {"older_digest": found.older_digest, "newer_digest": found.newer_digest}
    pairs = tx.execute(same, {"collection_id": found.collection_id, **texts}).all()
    tx.execute(update(supersessions).where(supersessions.c.id.in_([row.id for row in pairs])).values(undone_at=at))
    freed = [row.older_id for row in pairs]
    _hold_again(tx, freed)
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
    """Return, for those of the conclusions that there are some for, which others say otherwise and hold as well."""
    found: dict[int, list[int]] = {}
    for row in sorted(CONTRADICTING.rows(tx, ids), key=lambda row: row.id):
        found.setdefault(row.own, []).append(row.other)
    return found


SUCCESSORS_AT_ONCE = 50
"""As many as a turn asks evidence for."""
OF_OLDER, OF_NEWER = conclusion_messages.alias("of_older"), conclusion_messages.alias("of_newer")
NEWER_VECTOR = message_vectors.alias("newer_vector")
MESSAGE_KEYS = [f"id{number}" for number in range(SUCCESSORS_AT_ONCE)]
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
    """Return each statement of the first messages that was changed later and the statement that changed it, both with
    their messages, the newest of those last."""
    some = list(ids[:SUCCESSORS_AT_ONCE])
    if not some:
        return []
    given = dict(zip(MESSAGE_KEYS, some + some[-1:] * (SUCCESSORS_AT_ONCE - len(some)), strict=True))
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
    """Return one pair; refused when there is none."""
    own = (supersessions.c.public_id == public_id, OLDER.c.workspace_id == workspace_id)
    found = tx.execute(SHOWN.where(*own)).first()
    if found is None:
        raise Missing("Supersession", public_id)
    return found


def list_pairs(tx: Tx, conclusion_id: int) -> Sequence[Record]:
    """Return the pairs that a conclusion is a side of, the oldest first; those that were undone too."""
    sides = or_(supersessions.c.older_id == conclusion_id, supersessions.c.newer_id == conclusion_id)
    return tx.execute(SHOWN.where(sides).order_by(supersessions.c.id).limit(PAIRS_SHOWN)).all()
