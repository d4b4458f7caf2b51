"""Workspaces: the outermost boundary. Nothing in one workspace is visible from another.

Settings for one message: its configuration over the session's over the workspace's over the server's defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

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
"""Part of the name of a workspace that waits for its removal: no request path can contain it in a name."""
NAMED = select(workspaces).where(workspaces.c.name == bindparam("name"))
BY_NAME = PreparedStatement(NAMED)
LOCK = PreparedStatement(NAMED.with_for_update(key_share=True))
INSERT = PreparedStatement(inserting_new(workspaces, "uid", "name", "metadata", "configuration", "created_at"))


def find_workspace(tx: Tx, name: str) -> Record | None:
    return BY_NAME.first(tx, name=name)


def workspace_id_of(tx: Tx, name: str) -> int:
    """Return the id of the workspace, or 0, an id without rows, if it does not exist."""
    found = find_workspace(tx, name)
    return 0 if found is None else int(found.id)


def get_workspace(tx: Tx, name: str) -> Record:
    """Return the workspace. Raise Missing if it does not exist."""
    found = find_workspace(tx, name)
    if found is None:
        raise Missing("Workspace", name)
    return found


def lock_workspace(tx: Tx, name: str) -> Record:
    """Like `get_workspace`, and lock it: until this transaction ends nobody else changes it or adds messages in it."""
    found = LOCK.first(tx, name=name)
    if found is None:
        raise Missing("Workspace", name)
    return found


def ensure_workspace(
    tx: Tx, name: str, at: int, metadata: JsonMap | None = None, configuration: JsonMap | None = None
) -> tuple[Record, bool]:
    """Return the workspace, and whether it was created. An existing one is not changed."""
    found = find_workspace(tx, name)
    if found is not None:
        return found, False
    check_name(name)
    given = {"metadata": json.dumps(metadata or {}), "configuration": json.dumps(configuration or {})}
    made = INSERT.run(tx, uid=new_id(), name=name, created_at=at, **given)
    return get_workspace(tx, name), made == 1


def update_workspace(tx: Tx, name: str, at: int, metadata: JsonMap | None, configuration: JsonMap | None) -> Record:
    """Replace the metadata and merge the configuration key by key; a missing workspace is created."""
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
    """Return a page of workspaces that are not deleted, the oldest first; with `only`, that one."""
    query = select(workspaces).where(build_filter(filters, FIELDS), ~workspaces.c.name.contains(DELETED))
    if only is not None:
        query = query.where(workspaces.c.name == only)
    return fetch_page(tx, query, (workspaces.c.created_at, workspaces.c.id), page)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The switches of reasoning, and the intervals of summaries in messages."""

    reasoning: bool
    use_card: bool
    create_card: bool
    summaries: bool
    short_every: int
    long_every: int
    dreams: bool


def resolve(*layers: str | Mapping[str, Any]) -> SessionSettings:
    """Return the settings of several configurations, stored or given, the widest first."""
    stored = tuple(layer for layer in layers if isinstance(layer, str))
    if len(stored) == sum(1 for layer in layers if layer):
        return _resolve_stored(stored)
    return _resolve(layers)


def _resolve(layers: Sequence[str | Mapping[str, Any]]) -> SessionSettings:
    narrowest_first = [_modern(json.loads(layer) if isinstance(layer, str) else layer) for layer in reversed(layers)]

    def said(section: str, name: str) -> Any:
        """Return the value of the narrowest layer that has one; null counts as absent."""
        values = (_section(layer, section).get(name) for layer in narrowest_first)
        return next((value for value in values if value is not None), None)

    def count(name: str, default: int) -> int:
        value = said("summary", name)
        return value if isinstance(value, int) and value > 0 else default

    return SessionSettings(
        reasoning=said("reasoning", "enabled") is not False,
        use_card=said("peer_card", "use") is not False,
        create_card=said("peer_card", "create") is not False,
        summaries=said("summary", "enabled") is not False,
        short_every=count("messages_per_short_summary", 20),
        long_every=count("messages_per_long_summary", 60),
        dreams=said("dream", "enabled") is not False,
    )


_resolve_stored = lru_cache(maxsize=256)(_resolve)


def _modern(layer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the layer with older spellings of `reasoning.enabled`, still used in stored configurations, converted."""
    reasoning = _section(layer, "reasoning")
    older = _section(layer, "deriver").get("enabled")
    skipped = False if layer.get("skip_deriver") is True else None
    said = [value for value in (reasoning.get("enabled"), older, skipped) if isinstance(value, bool)]
    return {**layer, "reasoning": {**reasoning, "enabled": said[0]}} if said else layer


def _section(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = given.get(name)
    return found if isinstance(found, Mapping) else {}
