"""Narrow a filter by an index: a short list of messages that it can match. The filter itself is still checked on each.

Only conditions that every match must satisfy are used: ids, names, dates and values of metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, select

from hermes.memory_server import limits, times
from hermes.memory_server.db.database import JsonMap, Tx
from hermes.memory_server.db.matching import ORDERED, OVERFLOW_FACT, pattern_facts
from hermes.memory_server.db.tables import message_facts, messages, peers, sessions, workspaces
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.engine.filters import OPERATORS

MAX_SHORT_LIST_MESSAGES = 5000
"""A longer list would not help and is not made."""
MAX_FACTS_PER_PATTERN = 4
"""The number of values of one pattern that are looked up."""


def narrow(tx: Tx, place: SearchArea, filters: JsonMap) -> list[int] | None:
    """Return messages of the area that include every match of the filter; None if no index gives a short list."""
    found: set[int] | None = None
    for query in _queries(tx, place, filters):
        ids = [int(row[0]) for row in tx.execute(query.limit(MAX_SHORT_LIST_MESSAGES + 1))]
        if len(ids) <= MAX_SHORT_LIST_MESSAGES:
            found = {*ids} if found is None else found & {*ids}
            if not found:
                break
    return None if found is None else sorted(found)


def named(value: Any) -> list[str] | None:
    """Return the texts that a condition compares with, or None if it contains anything else."""
    if isinstance(value, Mapping) and set(value) == {"in"}:
        value = value["in"]
    texts = [value] if isinstance(value, str) else value
    plain = isinstance(texts, list) and all(isinstance(text, str) and text != "*" for text in texts)
    return texts if plain and len(texts) <= limits.SESSIONS_PER_RECALL else None


def _queries(tx: Tx, place: SearchArea, filters: JsonMap) -> Iterator[Select[Any]]:
    for key, value in filters.items():
        if key == "AND" and isinstance(value, list):
            for inner in value:
                yield from _queries(tx, place, inner)
        elif key == "created_at":
            yield from _dated(place, value)
        elif key == "metadata" and isinstance(value, Mapping):
            yield from _holding(place, value)
        elif (names := named(value)) is not None:
            yield from _named(tx, place, key, names)


def _named(tx: Tx, place: SearchArea, key: str, names: Sequence[str]) -> Iterator[Select[Any]]:
    if key == "id":
        yield select(messages.c.id).where(messages.c.public_id.in_(names))
    elif key in ("peer_id", "session_id"):
        table, column = (peers, messages.c.peer_id) if key == "peer_id" else (sessions, messages.c.session_id)
        yield select(messages.c.id).where(column.in_(rows_named(tx, table, place.workspace_id, names)))
    elif key == "workspace_id":
        own = select(workspaces.c.id).where(workspaces.c.id == place.workspace_id, workspaces.c.name.in_(names))
        if tx.execute(own).first() is None:
            yield select(messages.c.id).where(messages.c.id.in_(()))


def rows_named(tx: Tx, table: Any, workspace_id: int, names: Sequence[str]) -> list[int]:
    """Return the ids of peers or sessions with these names."""
    query = select(table.c.id).where(table.c.workspace_id == workspace_id, table.c.name.in_(names))
    return [int(row[0]) for row in tx.execute(query)]


def _dated(place: SearchArea, value: Any) -> Iterator[Select[Any]]:
    """Yield a query by date, within the sessions or the workspace of the area."""
    limits_: list[ColumnElement[bool]] = []
    if isinstance(value, str) and value != "*":
        limits_.append(messages.c.created_at == times.parse(value))
    elif isinstance(value, Mapping):
        given = {op: date for op, date in value.items() if op in ORDERED and isinstance(date, str) and date != "*"}
        limits_ += [ORDERED[op](messages.c.created_at, times.parse(date)) for op, date in given.items()]
    if limits_:
        in_place = messages.c.workspace_id == place.workspace_id
        if place.sessions is not None:
            in_place = messages.c.session_id.in_(place.sessions)
        yield select(messages.c.id).where(in_place, *limits_)


def _holding(place: SearchArea, value: JsonMap) -> Iterator[Select[Any]]:
    """Yield queries by values that the metadata must have."""
    for name, wanted in value.items():
        has_operators = isinstance(wanted, Mapping) and any(op in OPERATORS for op in wanted)
        if name == "contains" and isinstance(wanted, Mapping):
            facts = pattern_facts(wanted)
        elif name in OPERATORS or has_operators or wanted == "*":
            continue
        else:
            facts = pattern_facts({name: wanted})
        for fact in facts[:MAX_FACTS_PER_PATTERN]:
            yield select(message_facts.c.message_id).where(
                message_facts.c.workspace_id == place.workspace_id, message_facts.c.fact.in_((fact, OVERFLOW_FACT))
            )
