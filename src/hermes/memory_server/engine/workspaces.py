"""Workspaces: the outermost wall. Nothing in one is seen from another."""

from __future__ import annotations

import json

from sqlalchemy import bindparam, select, true, update

from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.statements import PreparedStatement, inserting_new
from hermes.memory_server.db.tables import peers, sessions, workspaces
from hermes.memory_server.engine.filters import Condition, Field, build_filter
from hermes.memory_server.engine.paging import Paged, PageRequest, fetch_page
from hermes.memory_server.faults import Missing
from hermes.memory_server.ids import check_name, new_id


def _with_session(fits: Condition) -> Condition:
    return workspaces.c.id.in_(select(sessions.c.workspace_id).where(sessions.c.is_active.is_(True), fits))


def _with_peer(fits: Condition) -> Condition:
    return workspaces.c.id.in_(select(peers.c.workspace_id).where(peers.c.kind == "peer", fits))


FIELDS = {
    "id": Field(workspaces.c.name),
    "workspace_id": Field(workspaces.c.name),
    "session_id": Field(sessions.c.name, among=_with_session),
    "peer_id": Field(peers.c.name, among=_with_peer),
    "is_active": Field(true(), "boolean"),
    "created_at": Field(workspaces.c.created_at, "time"),
    "metadata": Field(workspaces.c.metadata, "json"),
}
DELETED = "/"
"""Stands in the name of a workspace that waits for its removal: no path can ask for a name with it."""
NAMED = select(workspaces).where(workspaces.c.name == bindparam("name"))
BY_NAME = PreparedStatement(NAMED)
LOCK = PreparedStatement(NAMED.with_for_update(key_share=True))
INSERT = PreparedStatement(inserting_new(workspaces, "uid", "name", "metadata", "configuration", "created_at"))


def find_workspace(tx: Tx, name: str) -> Record | None:
    return BY_NAME.first(tx, name=name)


def workspace_id_of(tx: Tx, name: str) -> int:
    """The id of the workspace; 0, which none has, so that nothing is found in it, when there is none."""
    found = find_workspace(tx, name)
    return 0 if found is None else int(found.id)


def get_workspace(tx: Tx, name: str) -> Record:
    """The workspace; refused when there is none."""
    found = find_workspace(tx, name)
    if found is None:
        raise Missing("Workspace", name)
    return found


def lock_workspace(tx: Tx, name: str) -> Record:
    """As `get_workspace`; nobody else changes it, or adds messages in it, before this transaction ends."""
    found = LOCK.first(tx, name=name)
    if found is None:
        raise Missing("Workspace", name)
    return found


def ensure_workspace(
    tx: Tx, name: str, at: int, metadata: JsonMap | None = None, configuration: JsonMap | None = None
) -> tuple[Record, bool]:
    """The workspace, and whether it was made now. One that exists is left as it is."""
    found = find_workspace(tx, name)
    if found is not None:
        return found, False
    check_name(name)
    given = {"metadata": json.dumps(metadata or {}), "configuration": json.dumps(configuration or {})}
    made = INSERT.run(tx, uid=new_id(), name=name, created_at=at, **given)
    return get_workspace(tx, name), made == 1


def update_workspace(tx: Tx, name: str, at: int, metadata: JsonMap | None, configuration: JsonMap | None) -> Record:
    """Metadata is replaced, configuration merged key by key; a missing workspace is made."""
    ensure_workspace(tx, name, at)
    row = lock_workspace(tx, name)
    changes: dict[str, str] = {}
    if metadata is not None:
        changes["metadata"] = json.dumps(metadata)
    if configuration is not None:
        changes["configuration"] = json.dumps({**json.loads(row.configuration), **configuration})
    if changes:
        tx.execute(update(workspaces).where(workspaces.c.id == row.id).values(**changes))
    return get_workspace(tx, name)


def list_workspaces(tx: Tx, filters: JsonMap | None, page: PageRequest, only: str | None = None) -> Paged:
    """Workspaces that are not deleted, the oldest first; with `only`, that one."""
    query = select(workspaces).where(build_filter(filters, FIELDS), ~workspaces.c.name.contains(DELETED))
    if only is not None:
        query = query.where(workspaces.c.name == only)
    return fetch_page(tx, query, (workspaces.c.created_at, workspaces.c.id), page)
