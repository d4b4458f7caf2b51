"""Recall: choose an observer's conclusions about a peer for a purpose, and write them as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, bindparam, select

from hermes.memory_server import times
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import collections, conclusions, peers
from hermes.memory_server.embedder import Finer, SearchQuestion, Vector
from hermes.memory_server.engine.conclusions import find_brief, find_collection, find_conclusions, select_conclusions
from hermes.memory_server.engine.finer import find_conclusion_directions
from hermes.memory_server.engine.sentence_kinds import SECRET
from hermes.memory_server.engine.truth import contradictions
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.words import SearchWords, understand
from hermes.ranking.admission import lacks_value
from hermes.ranking.successors import MAX_COMPARED, SaidStatement, asks_former, put_successors_first
from hermes.ranking.traits import CONFIDENTIAL
from hermes.ranking.words import share_held

DEFAULT_MAX_CONCLUSIONS = 100
MAX_CHAIN = 5
"""The number of conclusions in a chain of supersessions that are followed."""
MAX_CANDIDATES, MAX_FINER_CANDIDATES = 20, 120
"""The number of closest conclusions that are ranked by their words; the second with the second embedder."""
FINER_WEIGHT = 0.75
"""The weight of the second embedder's closeness, relative to words and word vectors, for conclusions whose message has
such a vector.
"""
LACKING_VALUE_WEIGHT = 0.15
"""How much lower a conclusion is ranked that lacks a value of the kind that the question asks for."""
OWNER = PreparedStatement(select(peers.c.workspace_id).where(peers.c.id == bindparam("id")))
HEADINGS = (
    ("explicit", "## Explicit Observations"),
    ("deductive", "## Deductive Observations"),
    ("inductive", "## Inductive Observations"),
    ("contradiction", "## Contradictions"),
)


IS_OPEN = conclusions.c.standing.is_distinct_from(SECRET)
"""SQL condition: the conclusion holds no secret, so it may be shown without being asked for."""


class Order:
    """A sort order of conclusions, with the prepared statement for one collection in that order."""

    def __init__(self, *columns: ColumnElement[Any]) -> None:
        self.columns = columns
        of_one = select_conclusions().where(conclusions.c.collection_id == bindparam("collection"), IS_OPEN)
        self.of_one = PreparedStatement(of_one.order_by(*columns).limit(bindparam("limit")))


FREQUENT = Order(conclusions.c.times_derived.desc(), conclusions.c.id.desc())
NEWEST = Order(conclusions.c.id.desc())


@dataclass(frozen=True, slots=True)
class View:
    """A pair of observer and observed peer, and the sessions that conclusions may come from (None: all)."""

    observer: int
    observed: int
    sessions: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ConclusionChoice:
    search: SearchQuestion | None = None
    search_top_k: int | None = None
    search_max_distance: float | None = None
    include_most_frequent: bool = False
    max_conclusions: int | None = None


def choose(tx: Tx, index: VectorIndex, view: View, choice: ConclusionChoice) -> list[Record]:
    """Return the conclusions closest to the query, the most often derived and the newest, in this order, up to the
    maximum.
    """
    maximum = choice.max_conclusions or DEFAULT_MAX_CONCLUSIONS
    chosen: dict[str, Record] = {}
    if choice.search is not None:
        wanted = choice.search_top_k or max(1, maximum // 3)
        closest = query_views(tx, index, [view], choice.search, wanted, choice.search_max_distance)
        _keep(chosen, closest, maximum)
    if choice.include_most_frequent:
        share = maximum // 3 if choice.search is not None else maximum // 2
        _keep(chosen, _fetch(tx, view, FREQUENT, max(1, share)), maximum)
    _keep(chosen, _fetch(tx, view, NEWEST, maximum), maximum)
    rows = list(chosen.values())
    return put_newer_first(tx, rows, {row.id: view for row in rows})[:maximum]


def query_views(
    tx: Tx,
    index: VectorIndex,
    views: Sequence[View],
    question: SearchQuestion,
    top_k: int,
    max_distance: float | None,
    *,
    least: float = -1.0,
    read: bool = True,
) -> list[Record]:
    """Return the conclusions of these views that fit best, the best first, by meaning and by the question's words.
    Those below `least` are left out; secrets are included if the question asks for one. Without `read`, conclusions
    that come from messages are left out.
    """
    owner = OWNER.first(tx, id=views[0].observed) if views else None
    workspace_id = 0 if owner is None else int(owner.workspace_id)
    asked = understand(tx, workspace_id, question)
    most = max(MAX_CANDIDATES if question.finer is None else MAX_FINER_CANDIDATES, top_k * 2)
    while True:
        hits: list[tuple[int, float, int, View]] = []
        for view in views:
            if (collection := find_collection(tx, view.observer, view.observed)) is not None:
                near = index.nearest_conclusions(tx, collection, asked.vector, most, sessions=view.sessions, read=read)
                far = -1.0 if max_distance is None else 1.0 - max_distance
                hits += [(*hit, collection, view) for hit in near if hit[1] >= far]
        hits = sorted(hits, key=lambda hit: -hit[1])[:most]
        finer = _read_finer(tx, workspace_id, question, hits)
        best, seen = _rank(tx, hits, asked, least, finer)
        once = _drop_repeated(best)
        if len(once) >= top_k or len(once) == len(best) or len(hits) < most:
            if question.finer is not None:
                once = _put_successors_first(question.text, question.finer, once, finer)
            is_former = asks_former(question.text)
            read_count = max(top_k, MAX_COMPARED) if is_former else top_k
            rows = find_conclusions(tx, [row.id for row in once[:read_count]])
            return put_newer_first(tx, rows, seen, is_former=is_former)[:top_k]
        most *= 4  # many are equal


def _read_finer(
    tx: Tx, workspace_id: int, question: SearchQuestion, hits: Sequence[tuple[int, float, int, View]]
) -> dict[int, tuple[float, Vector]]:
    """Return the closeness and the second embedder's vector of the conclusions that have one."""
    if question.finer is None:
        return {}
    found = find_conclusion_directions(tx, workspace_id, question.finer, [hit[0] for hit in hits])
    return {row_id: (float(vector @ question.finer.vector), vector) for row_id, vector in found.items()}


def _put_successors_first(
    text: str, finer: Finer, rows: Sequence[Record], directions: Mapping[int, tuple[float, Vector]]
) -> list[Record]:
    said = [
        SaidStatement(row.content, row.collection_id, row.created_at, directions.get(row.id, (0.0, None))[1])
        for row in rows[:MAX_COMPARED]
    ]
    return [*(rows[at] for at in put_successors_first(text, finer.vector, said)), *rows[MAX_COMPARED:]]


def _rank(
    tx: Tx,
    hits: Sequence[tuple[int, float, int, View]],
    asked: SearchWords,
    least: float,
    finer: Mapping[int, tuple[float, Vector]],
) -> tuple[list[Record], dict[int, View]]:
    """Return the conclusions that are near enough, the best first, and the view of each."""
    rows = find_brief(tx, dict.fromkeys(hit[0] for hit in hits))
    fits: dict[int, float] = {}
    lacking: dict[int, float] = {}
    seen: dict[int, View] = {}
    for row_id, closeness, collection, view in hits:
        row = rows.get(row_id)
        if row is None or row.collection_id != collection:
            continue  # deleted or moved as of this transaction
        if row.standing == SECRET and asked.withheld & CONFIDENTIAL:
            continue
        # Only explicit conclusions surely come from one session.
        if view.sessions is None or row.level == "explicit":
            fit = (closeness + share_held(asked.words, row.content)) / 2
            if row_id in finer:
                fit += FINER_WEIGHT * (finer[row_id][0] - fit)
            fits.setdefault(row_id, fit)
            lacking.setdefault(row_id, LACKING_VALUE_WEIGHT * lacks_value(asked.text, row.content))
            seen.setdefault(row_id, view)
    best = sorted(fits, key=lambda row_id: lacking[row_id] - fits[row_id])
    return [rows[row_id] for row_id in best if fits[row_id] >= least], seen


def _drop_repeated(rows: Sequence[Record]) -> list[Record]:
    """Return the first of equal conclusions of several sessions."""
    once: dict[tuple[int, str, str, int | None], Record] = {}
    for row in rows:
        once.setdefault((row.collection_id, row.level, row.digest, row.superseded_by), row)
    return list(once.values())


def put_newer_first(
    tx: Tx, rows: Sequence[Record], views: Mapping[int, View], *, is_former: bool = False
) -> list[Record]:
    """Put the conclusion that superseded another before it, and the other side of a contradiction after it, even if
    these are not among the rows. `views` has the view through which each row is visible, by id. If what was before is
    asked for (`is_former`), the older one goes first, of those that are among the rows.
    """
    known = {row.id: row for row in rows}
    others = contradictions(tx, list(known))
    ordered: dict[int, Record] = {}
    for row in rows:
        chain, view = [row], views.get(row.id)
        while (newer := chain[-1].superseded_by) is not None and len(chain) < MAX_CHAIN:
            found = known.get(newer) or next(iter(find_conclusions(tx, [newer])), None)
            if found is None or found in chain or not _is_within(found, row, view):
                break
            chain.append(found)
        replaced = [one for one in rows if one.superseded_by == row.id]
        for each in [*replaced, *chain] if is_former else reversed(chain):
            ordered.setdefault(each.id, each)
        for other in find_conclusions(tx, others.get(row.id, ())):
            if _is_within(other, row, view):
                ordered.setdefault(other.id, other)
    return list(ordered.values())


def _is_within(row: Record, seen: Record, view: View | None) -> bool:
    """Return True if everybody who sees the second conclusion may see the first."""
    sessions = None if view is None else view.sessions
    return bool(row.collection_id == seen.collection_id and (sessions is None or row.session_id in sessions))


def write_representation(rows: Iterable[Record]) -> str:
    """Return conclusions as text for a model or a person, by level and in order of time; empty for none."""
    given = sorted(rows, key=lambda row: (row.created_at, row.id))
    shown = {row.id for row in given}
    before: dict[int, list[Record]] = {}
    for row in given:
        if row.superseded_by in shown:
            before.setdefault(row.superseded_by, []).append(row)
    parts: list[str] = []
    for level, heading in HEADINGS:
        lines = [_line(row, before) for row in given if row.level == level and row.superseded_by not in shown]
        if lines:
            parts.append("\n".join([heading, "", *lines]))
    return "\n\n".join(parts) + "\n" if parts else ""


def _line(row: Record, before: Mapping[int, Sequence[Record]]) -> str:
    """Return a conclusion with its premises and the conclusions that it superseded, the latest first."""
    lines = [f"[{times.to_stamp(row.created_at)}] {row.content}"]
    premises = json.loads(row.metadata).get("premises") if row.level != "explicit" else None
    if isinstance(premises, list) and premises:
        lines += ["   Premises:", *(f"   - {premise}" for premise in premises)]
    return "\n".join([*lines, *(f"   {line}" for line in _lines_before(row, before))])


def _lines_before(row: Record, before: Mapping[int, Sequence[Record]]) -> Iterator[str]:
    for older in reversed(before.get(row.id, ())):
        yield f"until {_day(older.valid_until)}: {older.content}"
        yield from _lines_before(older, before)


def _day(micros: int) -> str:
    day = times.to_day(micros)
    return f"{day.day} {day:%B %Y}"


def _fetch(tx: Tx, view: View, order: Order, limit: int) -> list[Record]:
    collection = find_collection(tx, view.observer, view.observed)
    if collection is None:
        return []
    if view.sessions is None:
        return order.of_one.rows(tx, collection=collection, limit=limit)
    query = select_conclusions().where(conclusions.c.collection_id == collection, IS_OPEN)
    # Only explicit conclusions surely come from one session.
    query = query.where(conclusions.c.session_id.in_(view.sessions), conclusions.c.level == "explicit")
    return list(tx.execute(query.order_by(*order.columns).limit(limit)))


def _keep(chosen: dict[str, Record], rows: Iterable[Record], maximum: int) -> None:
    for row in rows:
        if len(chosen) >= maximum:
            return
        chosen.setdefault(f"{row.digest}\0{row.level}\0{row.superseded_by}", row)


def every_view(tx: Tx, workspace_id: int, scopes: tuple[int, ...] | None, rows: tuple[int, ...] | None) -> list[View]:
    """Return the views of all peers on themselves, or of these scopes on everyone."""
    observer, observed = collections.c.observer_id, collections.c.observed_id
    held = observer == observed if scopes is None else observer.in_(scopes)
    query = select(observer, observed).where(collections.c.workspace_id == workspace_id, held)
    return [View(row.observer_id, row.observed_id, rows) for row in tx.execute(query)]
