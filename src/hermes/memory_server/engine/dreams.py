"""Dreams: going over what is held. Conclusions that say the same become one, what a model drew from premises that no
longer hold is retired, and what it draws now is added; a missing card is filled in. Nothing is removed: each dream has
a report of what it added and retired, and can be undone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.tables import conclusion_messages, conclusions, dreams, workspaces
from hermes.memory_server.engine.cards import choose_lines, is_written_by_person, write_card
from hermes.memory_server.engine.conclusions import (
    let_go,
    link_messages,
    lock_collection,
    message_ids,
    remove_conclusions,
)
from hermes.memory_server.engine.deductions import DreamProposals, store_drawn
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.paging import Paged, PageRequest, fetch_page
from hermes.memory_server.engine.peers import get_peer
from hermes.memory_server.engine.sentence_kinds import SECRET
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.settings import resolve
from hermes.memory_server.engine.tombstones import bury
from hermes.memory_server.engine.truth import LIVE, settle
from hermes.memory_server.engine.workspaces import get_workspace
from hermes.memory_server.faults import Missing, Refused
from hermes.memory_server.ids import new_id, refuse_scopes

REREAD = "reread"
"""The kind of a report, and the reason of retiring, of what is read again after an earlier version."""


def schedule_dream(
    tx: Tx, workspace: str, observer: str, observed: str | None, kind: str, session: str | None, at: int
) -> None:
    """Queue a dream about a peer; refused where dreams are switched off."""
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
    unit = f"dream:{place.id}:{watcher.id}:{watched.id}"
    payload = {"observer": watcher.id, "observed": watched.id, "kind": kind}
    add_job(tx, "dream", unit, at, place.id, payload, session_id=session_id, observers=[watcher.id])


def dream(tx: Tx, workspace_id: int, payload: JsonMap, found: DreamProposals, at: int) -> None:
    """Have a dream, with what a model proposes for it."""
    observer, observed = payload["observer"], payload["observed"]
    collection = lock_collection(tx, observer, observed)
    if collection is None:
        return
    live = (conclusions.c.collection_id == collection, LIVE)
    rows = list(tx.execute(select(conclusions).where(*live).order_by(conclusions.c.created_at, conclusions.c.id)))
    if payload["kind"] == "omni":
        rows, retired = _retire_equal(tx, rows, at)
        retired += _retire_baseless(tx, rows, at)
        added = store_drawn(tx, workspace_id, collection, found, at)
        report_changes(tx, workspace_id, collection, added, retired, at)
        if retired:
            let_go(tx, collection)
    configuration = select(workspaces.c.configuration).where(workspaces.c.id == workspace_id)
    settings = resolve(tx.execute(configuration).scalar_one())
    if settings.create_card and not is_written_by_person(tx, observer, observed):
        held = frozenset(row.digest for row in rows if row.superseded_by is None and row.standing != SECRET)
        if lines := choose_lines([row.content for row in reversed(rows) if row.level == "explicit"], held):
            write_card(tx, workspace_id, observer, observed, lines, at, written_by="dream")


def _retire_equal(tx: Tx, rows: list[Row[Any]], at: int) -> tuple[list[Row[Any]], list[JsonMap]]:
    """Retire all but the first of those that say the same; it gets the count and the messages of all. Returns what is
    left, and the report. Each session keeps its own: it may be deleted. So does each time that it held."""
    same: dict[tuple[str, str, int | None, int | None], list[Row[Any]]] = {}
    for row in rows:
        same.setdefault((row.digest, row.level, row.session_id, row.superseded_by), []).append(row)
    report: list[JsonMap] = []
    for kept, *others in same.values():
        own = set(message_ids(tx, [kept.id]))
        for row in others:
            new = sorted(set(message_ids(tx, [row.id])) - own)
            own |= {*new}
            _count(tx, kept.id, row.times_derived)
            link_messages(tx, kept.id, new)
            report.append(
                {**_retire(tx, row, "same", at), "into": kept.id, "count": row.times_derived, "messages": new}
            )
    return [found[0] for found in same.values()], report


def _retire_baseless(tx: Tx, rows: Sequence[Row[Any]], at: int) -> list[JsonMap]:
    """Retire what was drawn from premises of which one no longer holds."""
    holding = {row.public_id for row in rows if row.superseded_by is None}
    drawn = [row for row in rows if row.source_ids is not None]
    return [_retire(tx, row, "premise", at) for row in drawn if not holding.issuperset(json.loads(row.source_ids))]


def _retire(tx: Tx, row: Row[Any], why: str, at: int) -> dict[str, Any]:
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
    """Keep what a dream or rereading did, by ids: no text outlives what it is about."""
    values = {"public_id": new_id(), "workspace_id": workspace_id, "collection_id": collection, "created_at": at}
    tx.execute(
        insert(dreams).values({**values, "report": json.dumps({"kind": kind, "added": added, "retired": retired})})
    )


def list_dreams(tx: Tx, workspace: str, page: PageRequest) -> Paged:
    """The reports of a workspace's dreams, the oldest first."""
    query = select(dreams).where(dreams.c.workspace_id == get_workspace(tx, workspace).id)
    return fetch_page(tx, query, (dreams.c.id,), page)


def undo_dream(tx: Tx, workspace: str, public_id: str, at: int) -> Record:
    """Bring back what a dream retired, and remove what it added, which no later dream adds again. Undoing twice is
    fine."""
    own = (dreams.c.workspace_id == get_workspace(tx, workspace).id, dreams.c.public_id == public_id)
    found = tx.execute(select(dreams).where(*own).with_for_update()).first()
    if found is None:
        raise Missing("Dream", public_id, workspace)
    if found.undone_at is None:
        undo_report(tx, found, at)
    return tx.execute(select(dreams).where(*own)).one()


def find_reports(tx: Tx, workspace_id: int, kind: str, most: int) -> Sequence[Record]:
    """Return reports of a kind that were not undone, the newest first."""
    own = (dreams.c.workspace_id == workspace_id, dreams.c.undone_at.is_(None))
    of_kind = dreams.c.report.startswith(json.dumps({"kind": kind})[:-1])
    return tx.execute(select(dreams).where(*own, of_kind).order_by(dreams.c.id.desc()).limit(most)).all()


def undo_report(tx: Tx, found: Record, at: int) -> None:
    """Bring back what a report says was retired, and remove what was added."""
    report = json.loads(found.report)
    for one in report["retired"]:
        _bring_back(tx, one, at)
    inside = (conclusions.c.collection_id == found.collection_id, conclusions.c.public_id.in_(report["added"]))
    rows = tx.execute(select(conclusions.c.id, conclusions.c.content).where(*inside)).all()
    bury(tx, found.collection_id, [row.content for row in rows], at)
    remove_conclusions(tx, [row.id for row in rows], found.collection_id, at)
    tx.execute(update(dreams).where(dreams.c.id == found.id).values(undone_at=at))


def _bring_back(tx: Tx, one: JsonMap, at: int) -> None:
    row = (conclusions.c.public_id == one["id"], conclusions.c.retired_at.is_not(None))
    back = update(conclusions).where(*row).values(retired_at=None, retired_why=None).returning(conclusions.c.id)
    found = tx.execute(back).scalar_one_or_none()
    if found is not None and one["why"] == REREAD:  # its claims and pairs were let go
        settle(tx, found, at)
    if found is not None and "into" in one:
        _count(tx, one["into"], -one["count"])
        linked = conclusion_messages.c
        own = (linked.conclusion_id == one["into"], linked.message_id.in_(one["messages"]))
        tx.execute(delete(conclusion_messages).where(*own))
