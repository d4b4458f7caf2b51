"""Peers: the participants of conversations. A scope is a peer of another kind, which only listens.

Names of merged peers: each stands for the peer that it was merged into.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, FromClause, bindparam, or_, select, true, update

from hermes.memory_server import limits
from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.statements import PreparedStatement, inserting_new
from hermes.memory_server.db.tables import memberships, merges, peers, sessions, workspaces
from hermes.memory_server.engine.filters import Field, build_filter
from hermes.memory_server.engine.paging import Paged, PageRequest, fetch_page
from hermes.memory_server.engine.workspaces import ensure_workspace, workspace_id_of
from hermes.memory_server.faults import Invalid, Missing
from hermes.memory_server.ids import SCOPE_PREFIX, check_name, new_id

PEER_KEYS = frozenset({"peer_id", "observer", "observer_id", "observed", "observed_id"})
"""The filter keys that are compared with names of peers."""
INTO = PreparedStatement(
    select(merges.c.into_id, merges.c.into_name)
    .where(merges.c.workspace_id == bindparam("workspace_id"), merges.c.from_name == bindparam("name"))
    .where(merges.c.state == "done")
)


def follow_names(
    tx: Tx, workspace_id: int, filters: JsonMap | None, keys: Collection[str] = PEER_KEYS
) -> JsonMap | None:
    """Return the filter with current names; a name is replaced where it is compared as a whole: alone, in a list or
    with `ne`.
    """
    return None if filters is None else _follow(tx, workspace_id, filters, keys, depth=0)


def _follow(tx: Tx, workspace_id: int, filters: Any, keys: Collection[str], depth: int) -> Any:
    if not isinstance(filters, Mapping) or depth > limits.FILTER_DEPTH:
        return filters  # refused when it is built
    followed: dict[str, Any] = {}
    for key, value in filters.items():
        if key in ("AND", "OR", "NOT") and isinstance(value, list):
            followed[key] = [_follow(tx, workspace_id, item, keys, depth + 1) for item in value]
        else:
            followed[key] = _named_today(tx, workspace_id, value) if key in keys else value
    return followed


def _named_today(tx: Tx, workspace_id: int, value: Any) -> Any:
    if isinstance(value, str):
        return _name_today(tx, workspace_id, value)
    if isinstance(value, list):
        few = len(value) <= limits.SESSIONS_PER_RECALL  # more are refused when it is built
        return [_named_today(tx, workspace_id, one) if isinstance(one, str) else one for one in value] if few else value
    if isinstance(value, Mapping):
        whole = {op: _named_today(tx, workspace_id, value[op]) for op in ("in", "ne") if op in value}
        return {**value, **whole}
    return value


def _name_today(tx: Tx, workspace_id: int, name: str) -> str:
    into = INTO.first(tx, workspace_id=workspace_id, name=name)
    return name if into is None else _name_today(tx, workspace_id, str(into.into_name))


DELETED_PEER = "deleted"
MERGED_PEER = "merged"
"""Kinds of hidden peers: those waiting for removal, and those merged into another."""


def is_shown(table: FromClause) -> ColumnElement[bool]:
    """Return the condition, on the peers table or an alias of it, that a peer is visible."""
    return or_(table.c.kind == "peer", table.c.kind == "scope")


IS_SHOWN = is_shown(peers)
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
"""All filter keys except `session_id`. Every peer is active."""

NAMED = (
    peers.c.workspace_id == bindparam("workspace_id"),
    peers.c.name == bindparam("name"),
    IS_SHOWN,
)
BY_NAME = PreparedStatement(select(*COLUMNS).select_from(PEERS).where(*NAMED))
BY_ID = PreparedStatement(select(*COLUMNS).select_from(PEERS).where(peers.c.id == bindparam("id"), IS_SHOWN))
ID = PreparedStatement(select(peers.c.id).where(*NAMED))
INSERT = PreparedStatement(
    inserting_new(peers, "uid", "workspace_id", "name", "kind", "metadata", "configuration", "created_at")
)


def find_peer(tx: Tx, workspace_id: int, name: str) -> Record | None:
    """Return the peer, or None. The name of a merged peer leads to the other."""
    found = BY_NAME.first(tx, workspace_id=workspace_id, name=name)
    return found if found is not None else _merged(tx, workspace_id, name)


def _merged(tx: Tx, workspace_id: int, name: str) -> Record | None:
    """Return the peer that one of this name was merged into, or None."""
    into = INTO.first(tx, workspace_id=workspace_id, name=name)
    if into is None:
        return None
    found = BY_ID.first(tx, id=into.into_id)
    return found if found is not None else _merged(tx, workspace_id, into.into_name)


def is_merged(tx: Tx, workspace: str, name: str) -> bool:
    """Return True if a peer of this name was merged into another."""
    found = find_peer(tx, workspace_id_of(tx, workspace), name)
    return found is not None and found.name != name


def get_peer(tx: Tx, workspace: str, name: str) -> Record:
    """Return the peer. Raise Missing if it does not exist."""
    found = find_peer(tx, workspace_id_of(tx, workspace), name)
    if found is None:
        raise Missing("Peer", name, workspace)
    return found


def peer_in(tx: Tx, workspace: Record, name: str) -> Record:
    """Return the peer of a workspace row. Raise Missing if it does not exist."""
    found = find_peer(tx, workspace.id, name)
    if found is None:
        raise Missing("Peer", name, workspace.name)
    return found


def ensure_peer_ids(tx: Tx, workspace_id: int, names: Iterable[str], at: int) -> dict[str, int]:
    """Return the ids of these peers; missing ones are created."""
    ids: dict[str, int] = {}
    for name in dict.fromkeys(names):
        known = ID.first(tx, workspace_id=workspace_id, name=name) or _merged(tx, workspace_id, name)
        if known is None:
            insert_peer(tx, workspace_id, name, at, None, None, "peer")
            [known] = ID.rows(tx, workspace_id=workspace_id, name=name)
        ids[name] = int(known.id)
    return ids


def ensure_peer(
    tx: Tx, workspace: str, name: str, at: int, metadata: JsonMap | None = None, configuration: JsonMap | None = None
) -> tuple[Record, bool]:
    """Return the peer, and whether it was created. Given metadata and configuration replace the stored ones."""
    place, _ = ensure_workspace(tx, workspace, at)
    found = find_peer(tx, place.id, name)
    if found is None:
        if insert_peer(tx, place.id, name, at, metadata, configuration, "peer"):
            return get_peer(tx, workspace, name), True
        found = get_peer(tx, workspace, name)
    if found.kind != "peer":
        raise Invalid(f"{name} is a scope: use the routes of scopes")
    given = {"metadata": metadata, "configuration": configuration}
    changes = {key: json.dumps(value) for key, value in given.items() if value is not None}
    if not changes or found.name != name:  # changes for a merged peer do not apply to the other
        return found, False
    tx.execute(update(peers).where(peers.c.id == found.id).values(**changes))
    return get_peer(tx, workspace, name), False


def list_peers(tx: Tx, workspace: str, filters: JsonMap | None, kind: str | None, page: PageRequest) -> Paged:
    """Return a page of a workspace's peers, the oldest first: without scopes, scopes only, or all. Empty if the
    workspace does not exist.
    """
    place = workspace_id_of(tx, workspace)
    query = select(*COLUMNS).select_from(PEERS).where(peers.c.workspace_id == place)
    query = query.where(build_filter(follow_names(tx, place, filters, PEER_KEYS | {"id"}), _fields_in(place)))
    query = query.where(IS_SHOWN if kind == "all" else peers.c.kind == (kind or "peer"))
    return fetch_page(tx, query, (peers.c.created_at, peers.c.id), page)


def _fields_in(workspace_id: int) -> dict[str, Field]:
    """Return the filter keys of peers. `session_id` matches any session that the peer is in now."""
    inside = (
        select(memberships.c.peer_id)
        .select_from(sessions.join(memberships, memberships.c.session_id == sessions.c.id))
        .where(
            sessions.c.workspace_id == workspace_id, sessions.c.is_active.is_(True), memberships.c.left_seq.is_(None)
        )
    )
    return {**FIELDS, "session_id": Field(sessions.c.name, among=lambda fits: peers.c.id.in_(inside.where(fits)))}


def list_members(tx: Tx, session_id: int, page: PageRequest) -> Paged:
    """Return a page of the peers that are in a session now, in the order in which they joined, without scopes."""
    query = (
        select(*COLUMNS)
        .select_from(PEERS.join(memberships, memberships.c.peer_id == peers.c.id))
        .where(memberships.c.session_id == session_id, memberships.c.left_seq.is_(None), peers.c.kind == "peer")
    )
    return fetch_page(tx, query, (memberships.c.id,), page)


def is_member(tx: Tx, workspace: str, session: str, peer: str) -> bool:
    """Return True if the peer is in the session now."""
    place = workspace_id_of(tx, workspace)
    found = find_peer(tx, place, peer)
    inside = select(memberships.c.id).select_from(memberships.join(sessions))
    inside = inside.where(sessions.c.workspace_id == place, sessions.c.name == session)
    here = (memberships.c.peer_id == (found.id if found is not None else 0), memberships.c.left_seq.is_(None))
    return tx.execute(inside.where(*here)).first() is not None


def insert_peer(
    tx: Tx, workspace_id: int, name: str, at: int, metadata: JsonMap | None, configuration: JsonMap | None, kind: str
) -> bool:
    """Insert a peer or scope, unless the name exists. Return True if it was inserted."""
    check_name(name)
    row = {"workspace_id": workspace_id, "name": SCOPE_PREFIX + name if kind == "scope" else name, "kind": kind}
    given = {"metadata": json.dumps(metadata or {}), "configuration": json.dumps(configuration or {})}
    return INSERT.run(tx, uid=new_id(), created_at=at, **row, **given) == 1
