"""Peers: whoever speaks or is spoken of. A scope is a peer of another kind, which only listens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import bindparam, select, true, update

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import Prepared, inserting_new
from hermes.memory_server.db.tables import memberships, peers, sessions, workspaces
from hermes.memory_server.engine.filters import Field, build_filter
from hermes.memory_server.engine.names import check_name
from hermes.memory_server.engine.paging import Page, Paged, fetch_page
from hermes.memory_server.engine.workspaces import ensure_workspace, find_workspace, workspace_id_of
from hermes.memory_server.faults import Invalid, Missing
from hermes.memory_server.ids import new_id

DELETED_PEER = "deleted"
"""The kind of a peer that waits for its removal. Its name has a '/', so that no path or body can ask for it."""
COLUMNS = (*peers.c, workspaces.c.name.label("workspace"))
PEERS = peers.join(workspaces, workspaces.c.id == peers.c.workspace_id)
FIELDS = {
    "id": Field(peers.c.name),
    "peer_id": Field(peers.c.name),
    "workspace_id": Field(workspaces.c.name),
    "is_active": Field(true(), "boolean"),
    "created_at": Field(peers.c.created_at, "time"),
    "metadata": Field(peers.c.metadata, "json"),
}
"""All but `session_id`; every peer is active."""

NAMED = (
    peers.c.workspace_id == bindparam("workspace_id"),
    peers.c.name == bindparam("name"),
    peers.c.kind != DELETED_PEER,
)
BY_NAME = Prepared(select(*COLUMNS).select_from(PEERS).where(*NAMED))
ID = Prepared(select(peers.c.id).where(*NAMED))
INSERT = Prepared(
    inserting_new(peers, "uid", "workspace_id", "name", "kind", "metadata", "configuration", "created_at")
)


def find_peer(tx: Tx, workspace_id: int, name: str) -> Record | None:
    """The peer, or None."""
    return BY_NAME.first(tx, workspace_id=workspace_id, name=name)


def get_peer(tx: Tx, workspace: str, name: str) -> Record:
    """The peer; refused when there is none."""
    place = find_workspace(tx, workspace)
    found = find_peer(tx, place.id, name) if place is not None else None
    if found is None:
        raise Missing("Peer", name, workspace)
    return found


def ensure_peer_ids(tx: Tx, workspace_id: int, names: Iterable[str], at: int) -> dict[str, int]:
    """The ids of these peers; those that are missing are made."""
    ids: dict[str, int] = {}
    for name in dict.fromkeys(names):
        known = ID.first(tx, workspace_id=workspace_id, name=name)
        if known is None:
            _insert(tx, workspace_id, name, at, {}, {})
            [known] = ID.rows(tx, workspace_id=workspace_id, name=name)
        ids[name] = int(known.id)
    return ids


def ensure_peer(
    tx: Tx,
    workspace: str,
    name: str,
    at: int,
    *,
    metadata: Mapping[str, Any] | None,
    configuration: Mapping[str, Any] | None,
) -> tuple[Record, bool]:
    """The peer, and whether it was made now. What is given replaces what was there."""
    place, _ = ensure_workspace(tx, workspace, at)
    found = find_peer(tx, place.id, name)
    if found is None:
        if _insert(tx, place.id, name, at, metadata or {}, configuration or {}):
            return get_peer(tx, workspace, name), True
        found = get_peer(tx, workspace, name)
    if found.kind != "peer":
        raise Invalid(f"{name} is a scope: use the routes of scopes")
    given = {"metadata": metadata, "configuration": configuration}
    changes = {key: json.dumps(value) for key, value in given.items() if value is not None}
    if not changes:
        return found, False
    tx.execute(update(peers).where(peers.c.id == found.id).values(**changes))
    return get_peer(tx, workspace, name), False


def list_peers(tx: Tx, workspace: str, filters: Mapping[str, Any] | None, kind: str | None, page: Page) -> Paged:
    """Peers of a workspace, the oldest first: without scopes, scopes alone, or all. None in one that is not there."""
    place = workspace_id_of(tx, workspace)
    query = select(*COLUMNS).select_from(PEERS).where(peers.c.workspace_id == place)
    query = query.where(build_filter(filters, _fields_in(place)))
    if kind == "all":
        query = query.where(peers.c.kind != DELETED_PEER)
    else:
        query = query.where(peers.c.kind == ("scope" if kind == "scope" else "peer"))
    return fetch_page(tx, query, (peers.c.created_at, peers.c.id), page)


def _fields_in(workspace_id: int) -> dict[str, Field]:
    """The keys of a peer's filter. `session_id` is any of the sessions that the peer is in now."""
    inside = (
        select(memberships.c.peer_id)
        .select_from(sessions.join(memberships, memberships.c.session_id == sessions.c.id))
        .where(
            sessions.c.workspace_id == workspace_id, sessions.c.is_active.is_(True), memberships.c.left_seq.is_(None)
        )
    )
    return {**FIELDS, "session_id": Field(sessions.c.name, among=lambda fits: peers.c.id.in_(inside.where(fits)))}


def list_members(tx: Tx, session_id: int, page: Page) -> Paged:
    """The peers that are in a session now, in the order they came; scopes are not shown."""
    query = (
        select(*COLUMNS)
        .select_from(PEERS.join(memberships, memberships.c.peer_id == peers.c.id))
        .where(memberships.c.session_id == session_id, memberships.c.left_seq.is_(None), peers.c.kind == "peer")
    )
    return fetch_page(tx, query, (memberships.c.id,), page)


def is_member(tx: Tx, workspace: str, session: str, peer: str) -> bool:
    """Is the peer in the session now?"""
    query = (
        select(memberships.c.id)
        .select_from(
            memberships.join(peers, peers.c.id == memberships.c.peer_id)
            .join(sessions, sessions.c.id == memberships.c.session_id)
            .join(workspaces, workspaces.c.id == sessions.c.workspace_id)
        )
        .where(workspaces.c.name == workspace, sessions.c.name == session, peers.c.name == peer)
        .where(memberships.c.left_seq.is_(None))
    )
    return tx.execute(query).first() is not None


def _insert(
    tx: Tx, workspace_id: int, name: str, at: int, metadata: Mapping[str, Any], configuration: Mapping[str, Any]
) -> bool:
    """Make a peer, unless there is one of that name; was it made?"""
    check_name(name)
    given = {"metadata": json.dumps(metadata), "configuration": json.dumps(configuration)}
    return INSERT.run(tx, uid=new_id(), workspace_id=workspace_id, name=name, kind="peer", created_at=at, **given) == 1
