"""Names of merged peers: each stands for the peer that it was merged into."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import bindparam, select

from hermes.memory_server import limits
from hermes.memory_server.db.database import JsonMap, Tx
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import merges

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
