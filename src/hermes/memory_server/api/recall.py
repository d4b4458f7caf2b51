"""Parameters that recall routes share: sessions, observer, conclusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select

from hermes.memory_server import limits
from hermes.memory_server.db.database import JsonMap, Tx
from hermes.memory_server.db.tables import sessions
from hermes.memory_server.engine.recall import View
from hermes.memory_server.engine.scopes import get_scope, get_scopes, session_ids
from hermes.memory_server.engine.workspaces import workspace_id_of
from hermes.memory_server.faults import Invalid
from hermes.memory_server.ids import NAME

SessionChoice = str | Sequence[str] | None
"""One scope, several, or none."""


def allowed_sessions(filters: JsonMap | None, session: str | None) -> Sequence[str] | None:
    """Return the sessions to which a filter limits recall, None for no limit. The filter accepts only `session_id`. A
    session that is named besides it must be one of them."""
    if filters is None:
        return None
    if set(filters) != {"session_id"}:
        raise Invalid("filters here take session_id alone")
    value = filters["session_id"]
    if isinstance(value, Mapping) and set(value) == {"in"}:
        value = value["in"]
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Invalid("session_id takes an id, a list of ids or {'in': [ids]}")
    allowed = checked_names(names)
    if session is not None and session not in allowed:
        raise Invalid("session_id must be one of filters.session_id")
    return allowed


def checked_names(names: Sequence[str]) -> Sequence[str]:
    """Check that the names are valid session ids, and not too many."""
    if len(names) > limits.SESSIONS_PER_RECALL:
        raise Invalid(f"at most {limits.SESSIONS_PER_RECALL} sessions can be named")
    for name in names:
        if NAME.fullmatch(name) is None:
            raise Invalid(f"'{name}' is not a session id")
    return names


def named_sessions(filters: JsonMap | None, session: str | None) -> Sequence[str] | None:
    """Return the sessions of the filter, or the one session that is named."""
    allowed = allowed_sessions(filters, session)
    return allowed if session is None else checked_names([session])


def session_rows(tx: Tx, workspace: str, names: Sequence[str] | None) -> tuple[int, ...] | None:
    """Return the ids of these sessions. Unknown names are ignored, so a list of unknown names yields no session."""
    if names is None:
        return None
    inside = sessions.c.workspace_id == workspace_id_of(tx, workspace)
    query = select(sessions.c.id).where(inside, sessions.c.name.in_(names))
    return tuple(row.id for row in tx.execute(query.where(sessions.c.is_active.is_(True))))


def check_scope(scope: SessionChoice, filters: JsonMap | None, session: str | None) -> None:
    """Raise Invalid if a scope is combined with another choice of sessions."""
    if scope is not None and filters is not None:
        raise Invalid("scope and filters exclude each other")
    if scope is not None and session is not None:
        raise Invalid("scope and session_id exclude each other")


def scope_rows(tx: Tx, workspace: str, scope: str | Sequence[str]) -> tuple[int, ...]:
    """Return the ids of the sessions in one or more scopes."""
    rows = session_ids(tx, get_scopes(tx, workspace, scope))
    if not isinstance(scope, str) and len(rows) > limits.SESSIONS_PER_RECALL:
        raise Invalid(f"these scopes have more than {limits.SESSIONS_PER_RECALL} sessions together")
    return rows


def make_view(
    tx: Tx, workspace: str, observer_id: int, observed_id: int, scope: SessionChoice, names: Sequence[str] | None
) -> View:
    """Return the view to recall. A single scope is the observer; with several scopes the peer observes, limited to
    their sessions. Named sessions limit all other views."""
    if scope is not None and not isinstance(scope, str):
        return View(observer_id, observed_id, scope_rows(tx, workspace, scope))
    observer = observer_id if scope is None else get_scope(tx, workspace, scope).id
    return View(observer, observed_id, session_rows(tx, workspace, names))
