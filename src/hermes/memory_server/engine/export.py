"""Export a workspace as items that another server can import: each section in pages, ordered by row ids.

Row ids are not exported. Items refer to peers and sessions by name, and to messages and conclusions by public id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, exists, select

from hermes.memory_server import times
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.tables import (
    cards,
    collections,
    conclusion_messages,
    conclusion_versions,
    conclusions,
    memberships,
    messages,
    peers,
    scope_sessions,
    sessions,
    summaries,
    webhooks,
    workspaces,
)
from hermes.memory_server.engine.conclusions import observed, observers, select_conclusions
from hermes.memory_server.engine.messages import select_messages
from hermes.memory_server.engine.peers import IS_SHOWN, is_shown
from hermes.memory_server.engine.truth import list_pairs
from hermes.memory_server.ids import SCOPE_PREFIX

ITEMS_PER_PAGE = 100
"""The number of items in a page."""
MAX_PAGE_CHARS = 4_000_000
"""The length at which a page ends earlier; an item with a long history has a separate page."""
ExportItem = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExportSection:
    """A section of the export: how its rows are read and shown."""

    rows: Select[Any]
    workspace: ColumnElement[int]
    """The column with the workspace's id."""
    place: ColumnElement[int]
    """The growing column by which the rows are ordered."""
    show: Callable[[Tx, Record], ExportItem]


def export_part(tx: Tx, workspace_id: int, section: str, after: int) -> tuple[list[ExportItem], int | None]:
    """Return the items of a section after a number, and the number to continue after (None at the end)."""
    found = SECTIONS[section]
    own = found.rows.where(found.workspace == workspace_id, found.place > after)
    rows = tx.execute(own.add_columns(found.place.label("place")).order_by(found.place).limit(ITEMS_PER_PAGE)).all()
    items: list[ExportItem] = []
    room = MAX_PAGE_CHARS
    for row in rows:
        items.append(found.show(tx, row))
        room -= len(json.dumps(items[-1]))
        if room < 0:
            break
    more = len(items) < len(rows) or len(rows) == ITEMS_PER_PAGE
    return items, int(rows[len(items) - 1].place) if more else None


SESSIONS = select(sessions).where(sessions.c.is_active.is_(True))
STAYS = (
    select(memberships, sessions.c.name.label("session"), peers.c.name.label("peer"))
    .join_from(memberships, sessions, sessions.c.id == memberships.c.session_id)
    .join(peers, peers.c.id == memberships.c.peer_id)
    .where(sessions.c.is_active.is_(True), peers.c.kind == "peer")
)
LATER = memberships.alias()
LAST_STAYS = STAYS.where(
    memberships.c.left_seq.is_not(None),
    ~exists().where(
        LATER.c.session_id == memberships.c.session_id,
        LATER.c.peer_id == memberships.c.peer_id,
        LATER.c.id > memberships.c.id,
    ),
)
"""The last membership of each peer that has left its session."""
CARDS = (
    select(cards, observers.c.name.label("observer"), observed.c.name.label("observed"))
    .join_from(cards, collections, collections.c.id == cards.c.collection_id)
    .join(observers, observers.c.id == collections.c.observer_id)
    .join(observed, observed.c.id == collections.c.observed_id)
    .where(is_shown(observers), is_shown(observed))
)


def _show_named(_tx: Tx, row: Record) -> ExportItem:
    return {
        "id": row.name,
        "metadata": json.loads(row.metadata),
        "configuration": json.loads(row.configuration),
        "created_at": times.to_wire(row.created_at),
    }


def _show_peer(tx: Tx, row: Record) -> ExportItem:
    shown = _show_named(tx, row)
    return {**shown, "id": row.name.removeprefix(SCOPE_PREFIX), "kind": row.kind}


def _show_stay(_tx: Tx, row: Record) -> ExportItem:
    return {
        "session_id": row.session,
        "peer_id": row.peer,
        "observe_me": row.observe_me,
        "observe_others": row.observe_others,
        "joined_seq": row.joined_seq,
        "left_seq": row.left_seq,
        "joined_at": times.to_wire(row.joined_at),
    }


def _show_departure(_tx: Tx, row: Record) -> ExportItem:
    return {"session_id": row.session, "peer_id": row.peer}


def _show_message(_tx: Tx, row: Record) -> ExportItem:
    return {
        "id": row.public_id,
        "session_id": row.session,
        "peer_id": row.peer,
        "seq": row.seq,
        "content": row.content,
        "metadata": json.loads(row.metadata),
        "created_at": times.to_wire(row.created_at),
        "file": None if row.file is None else json.loads(row.file),
    }


def _show_scoped(tx: Tx, row: Record) -> ExportItem:
    query = select(peers.c.name).join_from(scope_sessions, peers, peers.c.id == scope_sessions.c.scope_id)
    names = tx.execute(query.where(scope_sessions.c.session_id == row.id).order_by(peers.c.id)).scalars()
    return {"session_id": row.name, "scopes": [name.removeprefix(SCOPE_PREFIX) for name in names]}


def _show_summed(tx: Tx, row: Record) -> ExportItem:
    query = select(summaries, messages.c.public_id).join_from(
        summaries, messages, messages.c.id == summaries.c.message_id
    )
    found = tx.execute(query.where(summaries.c.session_id == row.id).order_by(summaries.c.kind))
    return {
        "session_id": row.name,
        "summaries": [
            {
                "kind": one.kind,
                "content": one.content,
                "message_id": one.public_id,
                "created_at": times.to_wire(one.created_at),
            }
            for one in found
        ],
    }


def _show_conclusion(tx: Tx, row: Record) -> ExportItem:
    sources = select(messages.c.public_id).join_from(
        conclusion_messages, messages, messages.c.id == conclusion_messages.c.message_id
    )
    named = sources.where(conclusion_messages.c.conclusion_id == row.id).order_by(messages.c.id)
    pairs = (pair for pair in list_pairs(tx, row.id) if pair.newer_id == row.id)
    said = select(conclusion_versions).where(conclusion_versions.c.conclusion_id == row.id)
    versions = tx.execute(said.order_by(conclusion_versions.c.number))
    return {
        "id": row.public_id,
        "observer_id": row.observer,
        "observed_id": row.observed,
        "session_id": row.session,
        "level": row.level,
        "content": row.content,
        "metadata": json.loads(row.metadata),
        "created_at": times.to_wire(row.created_at),
        "times_derived": row.times_derived,
        "source_ids": None if row.source_ids is None else json.loads(row.source_ids),
        "message_ids": list(tx.execute(named).scalars()),
        "supersedes": [
            {
                "id": pair.older,
                "kind": pair.kind,
                "why": pair.why,
                "created_at": times.to_wire(pair.created_at),
                "undone_at": None if pair.undone_at is None else times.to_wire(pair.undone_at),
            }
            for pair in pairs
        ],
        "versions": [{"content": one.content, "replaced_at": times.to_wire(one.replaced_at)} for one in versions],
    }


def _show_card(_tx: Tx, row: Record) -> ExportItem:
    return {
        "observer_id": row.observer,
        "observed_id": row.observed,
        "lines": json.loads(row.lines),
        "written_by": row.written_by,
        "updated_at": times.to_wire(row.updated_at),
    }


def _show_webhook(_tx: Tx, row: Record) -> ExportItem:
    return {"url": row.url, "created_at": times.to_wire(row.created_at)}


def _of_sessions(rows: Select[Any], show: Callable[[Tx, Record], ExportItem]) -> ExportSection:
    return ExportSection(rows, sessions.c.workspace_id, sessions.c.id, show)


SECTIONS: Mapping[str, ExportSection] = {
    "workspace": ExportSection(select(workspaces), workspaces.c.id, workspaces.c.id, _show_named),
    "peers": ExportSection(select(peers).where(IS_SHOWN), peers.c.workspace_id, peers.c.id, _show_peer),
    "sessions": _of_sessions(SESSIONS, _show_named),
    "scopes": _of_sessions(SESSIONS.where(exists().where(scope_sessions.c.session_id == sessions.c.id)), _show_scoped),
    "memberships": ExportSection(STAYS, sessions.c.workspace_id, memberships.c.id, _show_stay),
    "messages": ExportSection(
        select_messages().where(sessions.c.is_active.is_(True)), messages.c.workspace_id, messages.c.id, _show_message
    ),
    "departures": ExportSection(LAST_STAYS, sessions.c.workspace_id, memberships.c.id, _show_departure),
    "conclusions": ExportSection(select_conclusions(), conclusions.c.workspace_id, conclusions.c.id, _show_conclusion),
    "cards": ExportSection(CARDS, collections.c.workspace_id, cards.c.collection_id, _show_card),
    "summaries": _of_sessions(SESSIONS.where(exists().where(summaries.c.session_id == sessions.c.id)), _show_summed),
    "webhooks": ExportSection(select(webhooks), webhooks.c.workspace_id, webhooks.c.id, _show_webhook),
}
"""In import order: no item refers to a later section."""
