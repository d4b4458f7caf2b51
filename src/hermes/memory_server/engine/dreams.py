"""Dreams: maintenance of conclusions. Equal conclusions are merged, drawn conclusions whose premises no longer hold
are retired, new ones are drawn, and a missing card is filled. Nothing is deleted: each dream has a report of what
it added and retired, and can be undone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, delete, func, insert, select, text, update

from hermes.memory_server import times
from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.tables import (
    OPEN_JOB,
    collections,
    conclusion_messages,
    conclusions,
    dreams,
    jobs,
    peers,
    workspaces,
)
from hermes.memory_server.engine.cards import fill_card
from hermes.memory_server.engine.conclusions import (
    link_messages,
    lock_collection,
    mark_collection_changed,
    message_ids,
    remove_conclusions,
)
from hermes.memory_server.engine.derive import DreamProposals, store_drawn
from hermes.memory_server.engine.job_kinds import DreamJob
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.paging import Paged, PageRequest, fetch_page
from hermes.memory_server.engine.peers import get_peer
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.truth import LIVE, add_tombstones, settle
from hermes.memory_server.engine.workspaces import get_workspace, resolve
from hermes.memory_server.faults import Missing, Refused
from hermes.memory_server.ids import new_id, refuse_scopes

REREAD = "reread"
"""The kind of report, and the reason for retiring, when conclusions are derived again after an upgrade."""
MIN_NEW_CONCLUSIONS = 50
"""The number of new statements about a peer after which a dream is queued automatically."""
QUIET_MICROSECONDS, DREAM_INTERVAL_MICROSECONDS = 600 * 1_000_000, 8 * 3600 * 1_000_000
"""The time since the last new statement, and since the last dream, before a dream is queued automatically."""
COLLECTIONS_PER_QUERY = 1000
"""The number of collections that are checked together."""
MAX_RETIRED_PER_DREAM = 200
"""The number of duplicated texts merged per dream, of duplicates per text, and of drawn conclusions checked; the next
dream continues.
"""


def schedule_dream(
    tx: Tx, workspace: str, observer: str, observed: str | None, kind: str, session: str | None, at: int
) -> None:
    """Queue a dream about a peer. Raise Refused if dreams are disabled."""
    refuse_scopes(observed or observer)
    place = get_workspace(tx, workspace)
    layers = [place.configuration]
    session_id = None
    if session is not None:
        found = get_session(tx, workspace, session)
        layers.append(found.configuration)
        session_id = found.id
    if not resolve(*layers).dreams:
        raise Refused("Dreams are disabled for this workspace or session")
    watcher = get_peer(tx, workspace, observer)
    watched = get_peer(tx, workspace, observed or observer)
    _queue(tx, place.id, watcher.id, watched.id, kind, session_id, at)


def _queue(tx: Tx, workspace_id: int, observer: int, observed: int, kind: str, session_id: int | None, at: int) -> None:
    unit, payload = _unit(workspace_id, observer, observed), DreamJob(observer, observed, kind)
    add_job(tx, payload, unit, at, workspace_id, session_id=session_id, observers=[observer])


def _unit(workspace_id: int, observer: int, observed: int) -> str:
    return f"dream:{workspace_id}:{observer}:{observed}"


def find_due_dreams(tx: Tx, at: int, after: int) -> tuple[list[Record], int]:
    """Return the collections with enough new statements since their last dream and none lately, and the id of the last
    collection checked (0 after the last one).
    """
    observer, observed = peers.alias("observer"), peers.alias("observed")
    newest = _learnt_at(0).scalar_subquery()
    enough = _learnt_at(MIN_NEW_CONCLUSIONS - 1).scalar_subquery()
    last = select(func.coalesce(func.max(dreams.c.created_at), 0)).where(dreams.c.collection_id == collections.c.id)
    since = last.scalar_subquery()
    part = (
        select(collections.c.id).where(collections.c.id > after).order_by(collections.c.id).limit(COLLECTIONS_PER_QUERY)
    )
    ids = list(tx.execute(part).scalars())
    query = (
        select(*collections.c, workspaces.c.configuration)
        .join(workspaces, workspaces.c.id == collections.c.workspace_id)
        .join(observer, observer.c.id == collections.c.observer_id)
        .join(observed, observed.c.id == collections.c.observed_id)
        .where(collections.c.id > after, collections.c.id <= max(ids, default=after))
        .where(observer.c.kind == "peer", observed.c.kind == "peer")
        .where(since <= at - DREAM_INTERVAL_MICROSECONDS, enough > since, newest <= at - QUIET_MICROSECONDS)
    )
    due = [row for row in tx.execute(query).all() if resolve(row.configuration).dreams]
    return due, ids[-1] if len(ids) == COLLECTIONS_PER_QUERY else 0


def queue_dreams(tx: Tx, due: Sequence[Record], at: int) -> None:
    """Queue dreams about collections that have none queued."""
    for row in due:
        whose = (row.workspace_id, row.observer_id, row.observed_id)
        if not tx.execute(select(jobs.c.id).where(jobs.c.unit == _unit(*whose), text(OPEN_JOB)).limit(1)).first():
            _queue(tx, *whose, "omni", None, at)


def _learnt_at(number: int) -> Select[Any]:
    """Return a query for the time at which a collection's newest statement but `number` was derived."""
    explicit = (conclusions.c.collection_id == collections.c.id, LIVE, conclusions.c.level == "explicit")
    learnt = func.coalesce(conclusions.c.learnt_at, conclusions.c.created_at)
    return select(learnt).where(*explicit).order_by(conclusions.c.id.desc()).limit(1).offset(number)


def dream(tx: Tx, workspace_id: int, given: DreamJob, found: DreamProposals, at: int) -> None:
    """Run a dream, with a model's proposals for it. It reads a bounded part of the collection, because other writers
    wait.
    """
    observer, observed = given.observer, given.observed
    collection = lock_collection(tx, observer, observed)
    if collection is None:
        return
    if given.task == "omni":
        retired = _retire_equal(tx, collection, at)
        retired += _retire_baseless(tx, collection, at)
        added = store_drawn(tx, workspace_id, collection, found, at)
        report_changes(tx, workspace_id, collection, added, retired, at)
        if retired:
            mark_collection_changed(tx, collection)
    fill_card(tx, workspace_id, observer, observed, collection, at)


def _retire_equal(tx: Tx, collection_id: int, at: int) -> list[JsonMap]:
    """Retire all but the first of equal conclusions; the first gets the counts and messages of all. Return the report.
    Each session keeps its own, because it may be deleted, and so does each period in which the conclusion held.
    """
    live = (conclusions.c.collection_id == collection_id, LIVE)
    alike = (conclusions.c.digest, conclusions.c.level, conclusions.c.session_id, conclusions.c.superseded_by)
    several = (
        select(conclusions.c.digest).where(*live).group_by(*alike).having(func.count() > 1).limit(MAX_RETIRED_PER_DREAM)
    )
    wanted = (*live, conclusions.c.digest.in_(several))
    same: dict[tuple[Any, ...], list[Record]] = {}
    for row in tx.execute(
        select(*alike, conclusions.c.id, conclusions.c.public_id, conclusions.c.times_derived)
        .where(*wanted)
        .order_by(conclusions.c.created_at, conclusions.c.id)
    ):
        same.setdefault((row.digest, row.level, row.session_id, row.superseded_by), []).append(row)
    report: list[JsonMap] = []
    for kept, *others in same.values():
        own = set(message_ids(tx, [kept.id]))
        for row in others[:MAX_RETIRED_PER_DREAM]:
            new = sorted(set(message_ids(tx, [row.id])) - own)
            own |= {*new}
            _count(tx, kept.id, row.times_derived)
            link_messages(tx, kept.id, new)
            report.append(
                {**_retire(tx, row, "same", at), "into": kept.id, "count": row.times_derived, "messages": new}
            )
    return report


def _retire_baseless(tx: Tx, collection_id: int, at: int) -> list[JsonMap]:
    """Retire drawn conclusions with a premise that no longer holds. Return the report."""
    live = (conclusions.c.collection_id == collection_id, LIVE)
    query = select(conclusions.c.id, conclusions.c.public_id, conclusions.c.source_ids)
    drawn = tx.execute(query.where(*live, conclusions.c.source_ids.is_not(None)).limit(MAX_RETIRED_PER_DREAM)).all()
    holding = select(func.count()).select_from(conclusions).where(*live, conclusions.c.superseded_by.is_(None))
    report: list[JsonMap] = []
    for row in drawn:
        sources = set(json.loads(row.source_ids))
        if tx.execute(holding.where(conclusions.c.public_id.in_(sources))).scalar_one() < len(sources):
            report.append(_retire(tx, row, "premise", at))
    return report


def _retire(tx: Tx, row: Record, why: str, at: int) -> dict[str, Any]:
    tx.execute(update(conclusions).where(conclusions.c.id == row.id).values(retired_at=at, retired_why=why))
    return {"id": row.public_id, "why": why}


def _count(tx: Tx, conclusion_id: int, times: int) -> None:
    more = {"times_derived": conclusions.c.times_derived + times}
    tx.execute(update(conclusions).where(conclusions.c.id == conclusion_id).values(more))


def report_changes(
    tx: Tx,
    workspace_id: int,
    collection: int,
    added: Sequence[str],
    retired: Sequence[JsonMap],
    at: int,
    kind: str = "dream",
) -> None:
    """Store a report of what a dream or rereading changed, by ids only: no text outlives the row that it comes from."""
    values = {"public_id": new_id(), "workspace_id": workspace_id, "collection_id": collection, "created_at": at}
    tx.execute(
        insert(dreams).values({**values, "report": json.dumps({"kind": kind, "added": added, "retired": retired})})
    )


def list_dreams(tx: Tx, workspace: str, page: PageRequest) -> Paged:
    """Return a page of the reports of a workspace's dreams, the oldest first."""
    query = select(dreams).where(dreams.c.workspace_id == get_workspace(tx, workspace).id)
    return fetch_page(tx, query, (dreams.c.id,), page)


def read_effects(tx: Tx, limit: int) -> list[JsonMap]:
    """Return the newest dreams of all workspaces that changed something, with the texts that they added and retired as
    far as these still exist.
    """
    empty: JsonMap = {"added": [], "retired": []}
    is_one = dreams.c.report.not_in([json.dumps(empty), json.dumps({"kind": "dream", **empty})])
    is_dream = ~dreams.c.report.startswith(json.dumps({"kind": REREAD})[:-1])
    query = select(*dreams.c, workspaces.c.name).join(workspaces, workspaces.c.id == dreams.c.workspace_id)
    effects: list[JsonMap] = []
    for row in tx.execute(query.where(is_one, is_dream).order_by(dreams.c.id.desc()).limit(limit)).all():
        report = json.loads(row.report)
        undone = None if row.undone_at is None else times.to_wire(row.undone_at)
        when = {"created_at": times.to_wire(row.created_at), "undone_at": undone}
        texts = {name: _read_texts(tx, ids) for name, ids in (
            ("added", report["added"]), ("retired", [one["id"] for one in report["retired"]])
        )}  # fmt: skip
        effects.append({"id": row.public_id, "workspace": row.name, **when, **texts})
    return effects


def _read_texts(tx: Tx, ids: Sequence[str]) -> list[str]:
    found = select(conclusions.c.content).where(conclusions.c.public_id.in_(ids[:MAX_RETIRED_PER_DREAM])).distinct()
    return list(tx.execute(found).scalars())


def undo_dream(tx: Tx, workspace: str | None, public_id: str, at: int) -> Record:
    """Restore what a dream retired, and delete what it added; no later dream adds that again. Undoing twice is
    allowed.
    """
    own: list[Any] = [dreams.c.public_id == public_id]
    if workspace is not None:
        own.append(dreams.c.workspace_id == get_workspace(tx, workspace).id)
    found = tx.execute(select(dreams).where(*own).with_for_update()).first()
    if found is None:
        raise Missing("Dream", public_id, workspace or "")
    if found.undone_at is None:
        undo_report(tx, found, at)
    return tx.execute(select(dreams).where(*own)).one()


def find_reports(tx: Tx, workspace_id: int, kind: str, most: int) -> Sequence[Record]:
    """Return reports of a kind that were not undone, the newest first."""
    own = (dreams.c.workspace_id == workspace_id, dreams.c.undone_at.is_(None))
    of_kind = dreams.c.report.startswith(json.dumps({"kind": kind})[:-1])
    return tx.execute(select(dreams).where(*own, of_kind).order_by(dreams.c.id.desc()).limit(most)).all()


def undo_report(tx: Tx, found: Record, at: int) -> None:
    """Restore what a report lists as retired, and delete what it lists as added."""
    report = json.loads(found.report)
    for one in report["retired"]:
        _bring_back(tx, one, at)
    inside = (conclusions.c.collection_id == found.collection_id, conclusions.c.public_id.in_(report["added"]))
    rows = tx.execute(select(conclusions.c.id, conclusions.c.content).where(*inside)).all()
    add_tombstones(tx, found.collection_id, [row.content for row in rows], at)
    remove_conclusions(tx, [row.id for row in rows], found.collection_id, at)
    tx.execute(update(dreams).where(dreams.c.id == found.id).values(undone_at=at))


def _bring_back(tx: Tx, one: JsonMap, at: int) -> None:
    row = (conclusions.c.public_id == one["id"], conclusions.c.retired_at.is_not(None))
    back = update(conclusions).where(*row).values(retired_at=None, retired_why=None).returning(conclusions.c.id)
    found = tx.execute(back).scalar_one_or_none()
    if found is not None and one["why"] == REREAD:  # its claims and pairs were released
        settle(tx, found, at)
    if found is not None and "into" in one:
        _count(tx, one["into"], -one["count"])
        linked = conclusion_messages.c
        own = (linked.conclusion_id == one["into"], linked.message_id.in_(one["messages"]))
        tx.execute(delete(conclusion_messages).where(*own))
