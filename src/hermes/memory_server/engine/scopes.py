"""Scopes: named sets of sessions. A scope is a silent peer that observes everyone in its sessions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import delete, insert, select, update

from hermes.memory_server import limits, times
from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.tables import collections, conclusions, peers, scope_sessions, sessions
from hermes.memory_server.engine.conclusions import (
    ensure_collection,
    insert_conclusion,
    message_ids,
    remove_conclusions,
)
from hermes.memory_server.engine.job_kinds import ScopeJob
from hermes.memory_server.engine.jobs import add_job, drop_observer
from hermes.memory_server.engine.paging import Paged, PageRequest, fetch_page
from hermes.memory_server.engine.peers import COLUMNS as PEER_COLUMNS
from hermes.memory_server.engine.peers import PEERS, find_peer, insert_peer
from hermes.memory_server.engine.sessions import COLUMNS as SESSION_COLUMNS
from hermes.memory_server.engine.sessions import SESSIONS, lock_session
from hermes.memory_server.engine.truth import LIVE, find_tombstone_time
from hermes.memory_server.engine.workspaces import ensure_workspace, get_workspace, workspace_id_of
from hermes.memory_server.faults import Invalid, Missing
from hermes.memory_server.ids import SCOPE_PREFIX


def ensure_scope(tx: Tx, workspace: str, name: str, metadata: JsonMap | None, at: int) -> tuple[Record, bool]:
    """Return the scope, and whether it was created. Given metadata replaces the stored one."""
    place, _ = ensure_workspace(tx, workspace, at)
    found = find_peer(tx, place.id, SCOPE_PREFIX + name)
    if found is None:
        if insert_peer(tx, place.id, name, at, metadata, None, "scope"):
            return get_scope(tx, workspace, name), True
        found = get_scope(tx, workspace, name)
    if metadata is not None:
        tx.execute(update(peers).where(peers.c.id == found.id).values(metadata=json.dumps(metadata)))
    return get_scope(tx, workspace, name), False


def get_scope(tx: Tx, workspace: str, name: str) -> Record:
    """Return the scope. Raise Missing if it does not exist."""
    place = get_workspace(tx, workspace)
    found = find_peer(tx, place.id, SCOPE_PREFIX + name)
    if found is None:
        raise Missing("Scope", name, workspace)
    return found


def get_scopes(tx: Tx, workspace: str, given: str | Sequence[str]) -> tuple[int, ...]:
    """Return the ids of one or more scopes. Raise Missing if one does not exist."""
    names = [given] if isinstance(given, str) else list(given)
    if len(names) > limits.MAX_SCOPES:
        raise Invalid(f"at most {limits.MAX_SCOPES} scopes can be named")
    return tuple(int(get_scope(tx, workspace, name).id) for name in dict.fromkeys(names))


def list_scopes(tx: Tx, workspace: str, page: PageRequest) -> Paged:
    """Return a page of scopes, the oldest first; empty if the workspace does not exist."""
    inside = peers.c.workspace_id == workspace_id_of(tx, workspace)
    query = select(*PEER_COLUMNS).select_from(PEERS).where(inside, peers.c.kind == "scope")
    return fetch_page(tx, query, (peers.c.created_at, peers.c.id), page)


def add_sessions(tx: Tx, workspace: str, scope: Record, names: Iterable[str], at: int) -> None:
    """Add sessions to a scope. Their existing conclusions are copied in the background."""
    for name in dict.fromkeys(names):
        session = lock_session(tx, workspace, name)
        if session.id in session_ids(tx, [scope.id]):
            continue
        values = {"scope_id": scope.id, "session_id": session.id, "updated_at": at}
        fresh = session.message_count == 0
        tx.execute(insert(scope_sessions).values(state="completed" if fresh else "pending", copied=0, **values))
        if not fresh:
            unit = f"scope:{scope.id}:{session.id}"
            filling = ScopeJob(scope.id, session.id)
            add_job(tx, filling, unit, at, session.workspace_id, session_id=session.id)


def remove_session(tx: Tx, workspace: str, scope_name: str, name: str, at: int) -> None:
    """Remove a session from a scope, with the scope's conclusions from it."""
    scope = get_scope(tx, workspace, scope_name)
    session = lock_session(tx, workspace, name)
    pair = (scope_sessions.c.scope_id == scope.id, scope_sessions.c.session_id == session.id)
    if tx.execute(delete(scope_sessions).where(*pair)).rowcount == 0:
        raise Missing("Session", f"{name} in scope {scope_name}", workspace)
    drop_observer(tx, scope.id, session.id)
    held = select(conclusions.c.id, conclusions.c.collection_id).join_from(conclusions, collections)
    held = held.where(collections.c.observer_id == scope.id, conclusions.c.session_id == session.id)
    for row in tx.execute(held.where(LIVE)).all():
        remove_conclusions(tx, [row.id], row.collection_id, at)


def session_ids(tx: Tx, scope_ids: Sequence[int]) -> tuple[int, ...]:
    """Return the ids of the sessions in these scopes."""
    query = select(scope_sessions.c.session_id).distinct().where(scope_sessions.c.scope_id.in_(scope_ids))
    return tuple(row.session_id for row in tx.execute(query))


def list_scope_sessions(tx: Tx, workspace: str, name: str, page: PageRequest) -> Paged:
    """Return a page of a scope's sessions, the oldest first."""
    scope = get_scope(tx, workspace, name)
    joined = SESSIONS.join(scope_sessions, scope_sessions.c.session_id == sessions.c.id)
    query = select(*SESSION_COLUMNS).select_from(joined)
    query = query.where(scope_sessions.c.scope_id == scope.id, sessions.c.is_active.is_(True))
    return fetch_page(tx, query, (sessions.c.created_at, sessions.c.id), page)


def read_status(tx: Tx, workspace: str, name: str) -> dict[str, dict[str, Any]]:
    """Return the state of copying, by session."""
    query = select(scope_sessions, sessions.c.name).join_from(scope_sessions, sessions)
    rows = tx.execute(query.where(scope_sessions.c.scope_id == get_scope(tx, workspace, name).id))
    return {
        row.name: {"state": row.state, "updated_at": times.to_wire(row.updated_at), "docs_copied": row.copied}
        for row in rows
    }


def copy_conclusions(tx: Tx, workspace_id: int, filling: ScopeJob, at: int) -> None:
    """Copy to a scope the conclusions that peers hold about themselves from a session that was added to it."""
    scope, session = filling.scope, filling.session
    pair = (scope_sessions.c.scope_id == scope, scope_sessions.c.session_id == session)
    state = select(scope_sessions.c.state).where(*pair).with_for_update(key_share=True)
    if tx.execute(state).scalar_one_or_none() != "pending":
        return
    own = select(conclusions, collections.c.observed_id).join_from(conclusions, collections)
    own = own.where(conclusions.c.session_id == session, conclusions.c.level == "explicit")
    own = own.where(collections.c.observer_id == collections.c.observed_id, LIVE)
    copied = 0
    for row in tx.execute(own.order_by(conclusions.c.id)).all():
        target = ensure_collection(tx, workspace_id, scope, row.observed_id)
        known = select(conclusions.c.id).where(
            conclusions.c.collection_id == target, conclusions.c.digest == row.digest
        )
        known = known.where(conclusions.c.session_id == session, LIVE)
        deleted = find_tombstone_time(tx, target, row.content)
        if tx.execute(known).first() is None and (deleted is None or deleted < row.created_at):
            sources = message_ids(tx, [row.id])
            said = (row.content, row.created_at, at)
            insert_conclusion(tx, workspace_id, target, session, *said, vector=row.vector, message_ids=sources)
            copied += 1
    tx.execute(update(scope_sessions).where(*pair).values(state="completed", copied=copied, updated_at=at))
