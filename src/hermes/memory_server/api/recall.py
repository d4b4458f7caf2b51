"""What recall routes have in common: which sessions, which observer, which conclusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.tables import sessions
from hermes.memory_server.engine.filters import checked_names, session_allowlist
from hermes.memory_server.engine.peers import find_peer
from hermes.memory_server.engine.scopes import get_scopes
from hermes.memory_server.engine.workspaces import get_workspace
from hermes.memory_server.faults import Invalid


def allowed_sessions(filters: Mapping[str, Any] | None, session: str | None) -> Sequence[str] | None:
    """The sessions that a filter limits recall to; a session that is named beside it must be one of them."""
    allowed = session_allowlist(filters)
    if allowed is not None and session is not None and session not in allowed:
        raise Invalid("session_id must be one of filters.session_id")
    return allowed


def named_sessions(filters: Mapping[str, Any] | None, session: str | None) -> Sequence[str] | None:
    """As `allowed_sessions`, or the one session that is named."""
    allowed = allowed_sessions(filters, session)
    return allowed if session is None else checked_names([session])


def session_rows(tx: Tx, workspace_id: int, names: Sequence[str] | None) -> tuple[int, ...] | None:
    """The rows of these sessions; names that nobody has are passed over, so none of them means none."""
    if names is None:
        return None
    query = select(sessions.c.id).where(sessions.c.workspace_id == workspace_id, sessions.c.name.in_(names))
    return tuple(row.id for row in tx.execute(query.where(sessions.c.is_active.is_(True))))


def perspective(tx: Tx, workspace: str, peer: str, scope: str | Sequence[str] | None) -> tuple[int, ...]:
    """Who observes: the scopes, if any are named, else the peer; nobody when the peer is unknown."""
    if scope is not None:
        return get_scopes(tx, workspace, scope)
    found = find_peer(tx, get_workspace(tx, workspace).id, peer)
    return () if found is None else (int(found.id),)
