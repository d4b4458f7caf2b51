"""Sessions: one conversation each, with its members."""

from __future__ import annotations

import json

from sqlalchemy import bindparam, exists, select, update

from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.statements import PreparedStatement, inserting_new
from hermes.memory_server.db.tables import memberships, peers, sessions, workspaces
from hermes.memory_server.engine.filters import Field, build_filter
from hermes.memory_server.engine.paging import Paged, PageRequest, fetch_page
from hermes.memory_server.engine.peers import find_peer, follow_names
from hermes.memory_server.engine.workspaces import ensure_workspace, lock_workspace, workspace_id_of
from hermes.memory_server.faults import Missing
from hermes.memory_server.ids import check_name, new_id

COLUMNS = (
    *sessions.c,
    workspaces.c.name.label("workspace"),
    workspaces.c.configuration.label("workspace_configuration"),
)
SESSIONS = sessions.join(workspaces, workspaces.c.id == sessions.c.workspace_id)
FIELDS = {
    "id": Field(sessions.c.name),
    "session_id": Field(sessions.c.name),
    "workspace_id": Field(workspaces.c.name),
    "is_active": Field(sessions.c.is_active, "boolean"),
    "created_at": Field(sessions.c.created_at, "time"),
    "metadata": Field(sessions.c.metadata, "json"),
}
NAMED = select(*COLUMNS).select_from(SESSIONS).where(sessions.c.name == bindparam("name"))
BY_NAME = PreparedStatement(NAMED.where(sessions.c.workspace_id == bindparam("workspace_id")))
BY_NAMES = PreparedStatement(NAMED.where(workspaces.c.name == bindparam("workspace_name")))
LOCK = PreparedStatement(
    select(*COLUMNS)
    .select_from(workspaces.join(sessions, sessions.c.workspace_id == workspaces.c.id))
    .where(workspaces.c.name == bindparam("workspace_name"), sessions.c.name == bindparam("name"))
    .with_for_update(key_share=True)
)
"""Rows are locked in this order, workspace first, everywhere, so that two transactions cannot deadlock."""
INSERT = PreparedStatement(
    inserting_new(
        *(sessions, "uid", "workspace_id", "name", "metadata", "configuration", "created_at"), returning=sessions.c.id
    )
)


def find_session(tx: Tx, workspace_id: int, name: str) -> Record | None:
    """Return the session, deleted ones included, or None."""
    return BY_NAME.first(tx, workspace_id=workspace_id, name=name)


def find_live_session(tx: Tx, workspace: str, name: str) -> Record | None:
    """Return the session, or None if it does not exist or is being deleted."""
    found = BY_NAMES.first(tx, workspace_name=workspace, name=name)
    return found if found is not None and found.is_active else None


def get_session(tx: Tx, workspace: str, name: str) -> Record:
    """Return the session. Raise Missing if it does not exist or is being deleted."""
    return _live(BY_NAMES.first(tx, workspace_name=workspace, name=name), name, workspace)


def session_in(tx: Tx, workspace: Record, name: str) -> Record:
    """Like `get_session`, for a workspace row."""
    return _live(find_session(tx, workspace.id, name), name, workspace.name)


def live_session_id(tx: Tx, workspace: str, name: str) -> int:
    """Return the id of the session, or 0, an id without rows, if it does not exist or is being deleted."""
    found = find_live_session(tx, workspace, name)
    return 0 if found is None else int(found.id)


def lock_session(tx: Tx, workspace: str, name: str) -> Record:
    """Like `get_session`, and lock it: until this transaction ends nobody else changes it or adds messages in its
    workspace.
    """
    return _live(LOCK.first(tx, workspace_name=workspace, name=name), name, workspace)


def _live(found: Record | None, name: str, workspace: str) -> Record:
    if found is None or not found.is_active:
        raise Missing("Session", name, workspace)
    return found


def ensure_session(
    tx: Tx, workspace: str, name: str, at: int, metadata: JsonMap | None = None, configuration: JsonMap | None = None
) -> tuple[Record, bool]:
    """Return the session, locked, and whether it was created. Given metadata replaces, given configuration is
    merged.
    """
    found = LOCK.first(tx, workspace_name=workspace, name=name)
    if found is None:
        ensure_workspace(tx, workspace, at)
        place = lock_workspace(tx, workspace)
        given = json.dumps(metadata or {}), json.dumps(configuration or {})
        if insert_session(tx, place.id, name, at, *given) is not None:
            return lock_session(tx, workspace, name), True
        found = lock_session(tx, workspace, name)
    found = _live(found, name, workspace)
    changes: dict[str, str] = {}
    if metadata is not None:
        changes["metadata"] = json.dumps(metadata)
    if configuration is not None:
        changes["configuration"] = json.dumps({**json.loads(found.configuration), **configuration})
    if not changes:
        return found, False
    tx.execute(update(sessions).where(sessions.c.id == found.id).values(**changes))
    return get_session(tx, workspace, name), False


def insert_session(tx: Tx, workspace_id: int, name: str, at: int, metadata: str, configuration: str) -> int | None:
    """Insert a new, empty session and return its row id; None if the name exists."""
    check_name(name)
    values = {"workspace_id": workspace_id, "name": name, "metadata": metadata, "configuration": configuration}
    made = INSERT.rows(tx, uid=new_id(), created_at=at, **values)
    return int(made[0].id) if made else None


def list_sessions(tx: Tx, workspace: str, filters: JsonMap | None, page: PageRequest) -> Paged:
    """Return a page of sessions that are not deleted, the oldest first; empty if the workspace does not exist."""
    place = workspace_id_of(tx, workspace)
    query = select(*COLUMNS).select_from(SESSIONS).where(sessions.c.workspace_id == place)
    query = query.where(
        sessions.c.is_active.is_(True), build_filter(follow_names(tx, place, filters), _fields_in(place))
    )
    return fetch_page(tx, query, (sessions.c.created_at, sessions.c.id), page)


def list_sessions_of(
    tx: Tx, workspace: str, peer: str, filters: JsonMap | None, page: PageRequest, *, is_in_now: bool = False
) -> Paged:
    """Return a page of the sessions that the peer is or was in, the oldest first; empty if the peer does not exist."""
    place = workspace_id_of(tx, workspace)
    member = find_peer(tx, place, peer)
    member_id = 0 if member is None else member.id
    been = exists().where(memberships.c.peer_id == member_id, memberships.c.session_id == sessions.c.id)
    been = been.where(memberships.c.left_seq.is_(None)) if is_in_now else been
    query = select(*COLUMNS).select_from(SESSIONS).where(sessions.c.workspace_id == place, been)
    query = query.where(build_filter(follow_names(tx, place, filters), _fields_in(place)))
    return fetch_page(tx, query, (sessions.c.created_at, sessions.c.id), page)


def _fields_in(workspace_id: int) -> dict[str, Field]:
    """Return the filter keys of sessions. `peer_id` matches any current member."""
    inside = (
        select(memberships.c.session_id)
        .select_from(peers.join(memberships, memberships.c.peer_id == peers.c.id))
        .where(peers.c.workspace_id == workspace_id, memberships.c.left_seq.is_(None))
    )
    member = Field(peers.c.name, among=lambda fits: sessions.c.id.in_(inside.where(fits)))
    return {**FIELDS, "peer_id": member}
