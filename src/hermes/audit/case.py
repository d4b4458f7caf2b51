"""The case: everything an audit needs to know about a store's sessions, read in one go, judged without reading on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hermes.audit.damage import ORPHANED, ROTATED
from hermes.db.engine import Tx
from hermes.store.routes import Routes
from hermes.store.schema import TableShape, live_rows, read_shape
from hermes.store.sessions import Sessions
from hermes.types import Session

BIRTH = 10.0
"""Seconds in which a compression fills its child; what is said later was said by people."""
ROTATION = 600.0
"""Seconds between a parent's end and a child that was certainly made by the same compression."""
FIELDS = (
    "user_id",
    "session_key",
    "chat_id",
    "chat_type",
    "thread_id",
    "parent_session_id",
    "end_reason",
)


@dataclass(frozen=True, slots=True)
class Activity:
    """A session's live messages: the newest, and the newest a person sent after the compression was over. 0 is none."""

    newest: int = 0
    went_on: int = 0


@dataclass(frozen=True)
class Case:
    """Sessions by id, the bindings in force, the keys of ours among them, and what was said where it matters."""

    sessions: dict[str, Session]
    routes: dict[str, str]
    our_keys: frozenset[str]
    activity: dict[str, Activity]
    has_older_traces: bool
    """Whether an older version has ever used this file: what only we wrote was not damaged by it."""

    def said(self, session: Session) -> Activity:
        return self.activity.get(session.id, Activity())

    def keys_of(self, session: Session) -> list[str]:
        """The keys that are bound to a session."""
        return self._keys.get(session.id, [])

    def parent(self, child: Session) -> Session | None:
        """The session that a compression continued in `child`, of whichever conversation."""
        parent = self.sessions.get(child.parent_session_id or "")
        rotated = parent is not None and parent.end_reason == ROTATED and child.started_at >= (parent.ended_at or 0)
        return parent if rotated else None

    def rotated_from(self, child: Session) -> Session | None:
        """The parent, if it is of the same conversation."""
        parent = self.parent(child)
        return parent if parent is not None and not self.are_strangers(parent, child) else None

    def are_strangers(self, parent: Session, child: Session) -> bool:
        """Whether two sessions certainly belong to different conversations. What is not known is no evidence."""
        if parent.chat_id and child.chat_id:
            apart = bool(parent.thread_id and child.thread_id) and parent.thread_id != child.thread_id
            return parent.chat_id != child.chat_id or apart
        if parent.session_key and child.session_key:
            return parent.session_key != child.session_key
        known = bool(parent.user_id and child.user_id)
        return known and parent.user_id != child.user_id and (self._is_direct(parent) or self._is_direct(child))

    def children(self, parent: Session) -> list[Session]:
        """What compressions made of a session, in order; of the same conversation only."""
        return self._children.get(parent.id, [])

    def family(self, session: Session) -> list[Session]:
        """Every session of a rotated conversation, this one included, the first one first."""
        root, seen = session, {session.id}
        while (before := self.rotated_from(root)) is not None and before.id not in seen:
            seen.add(before.id)
            root = before
        found = [root]
        for member in found:
            found += [child for child in self.children(member) if child not in found]
        return found

    def is_routed_source(self, session: Session) -> bool:
        """Whether sessions from this source are reached by keys at all: a terminal's never are."""
        return bool(session.session_key or session.chat_id) or session.source in self._routed_sources

    def _is_direct(self, session: Session) -> bool:
        """Whether it is a chat between two, so that another user means another conversation."""
        return session.chat_type == "dm" or any(":dm:" in key for key in self.keys_of(session))

    @cached_property
    def _keys(self) -> dict[str, list[str]]:
        keys: dict[str, list[str]] = {}
        for key, bound in sorted(self.routes.items()):
            keys.setdefault(bound, []).append(key)
        return keys

    @cached_property
    def _children(self) -> dict[str, list[Session]]:
        children: dict[str, list[Session]] = {}
        for session in sorted(self.sessions.values(), key=lambda child: (child.started_at, child.id)):
            if (parent := self.rotated_from(session)) is not None:
                children.setdefault(parent.id, []).append(session)
        return children

    @cached_property
    def _routed_sources(self) -> set[str]:
        return {self.sessions[bound].source for bound in self.routes.values()}


def read_case(tx: Tx, old_routes_file: Path) -> Case:
    """The case of an open file that has all of our tables, or was lent them."""
    session_shape, message_shape = read_shape(tx)
    sessions = {session.id: session for session in _read_sessions(tx, session_shape)}
    tables = {row["name"] for row in tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    has_old_routes = "gateway_routing" in tables
    routes = Routes(Sessions(session_shape, message_shape), old_routes_file, has_old_routes).all(tx)
    ours = frozenset(str(row["session_key"]) for row in tx.execute("SELECT session_key FROM hermes_routes"))
    return Case(
        sessions,
        routes,
        ours,
        _read_activity(tx, message_shape, sessions, _of_interest(sessions)),
        has_older_traces=has_old_routes or "schema_version" in tables or old_routes_file.exists(),
    )


def is_open(session: Session) -> bool:
    """Whether it goes on."""
    return session.ended_at is None and session.end_reason is None


def may_reopen(session: Session) -> bool:
    """Whether it goes on or was only ended by a compression, not by a person or a reset."""
    return is_open(session) or session.end_reason in (ROTATED, ORPHANED)


def _read_sessions(tx: Tx, shape: TableShape) -> Iterator[Session]:
    fields = ", ".join(f"{shape.field(name)} AS {name}" for name in FIELDS)
    rows = tx.execute(
        f"SELECT t.id, t.source, CAST(t.started_at AS REAL) AS started_at, {fields}, "
        f"CAST({shape.field('ended_at')} AS REAL) AS ended_at FROM sessions t "
        "LEFT JOIN hermes_session_extra x ON x.session_id = t.id WHERE typeof(t.id) = 'text'"
    )
    for row in rows:
        yield Session(**{name: row[name] for name in row.keys()})  # noqa: SIM118 - a row iterates over values


def _of_interest(sessions: dict[str, Session]) -> set[str]:
    """Sessions whose messages decide something: those with a parent, parents, and those that share a key."""
    found: set[str] = set()
    by_key: dict[str, str] = {}
    for session in sessions.values():
        if session.parent_session_id in sessions:
            found |= {session.id, str(session.parent_session_id)}
        if session.session_key and is_open(session):
            first = by_key.setdefault(session.session_key, session.id)
            found |= {first, session.id} if first != session.id else set()
    return found


def _read_activity(
    tx: Tx, shape: TableShape, sessions: dict[str, Session], wanted: Collection[str]
) -> dict[str, Activity]:
    marks = {key: _compressed_at(sessions[key]) + BIRTH for key in wanted}
    rows = tx.execute(
        f"""
        SELECT t.session_id, max(t.id) AS newest,
               max(CASE WHEN t.role = 'user' AND t.timestamp > m.value THEN t.id ELSE 0 END) AS went_on
        FROM json_each(?) m JOIN messages t ON t.session_id = m.key WHERE {live_rows(shape)} GROUP BY t.session_id
        """,
        (json.dumps(marks),),
    )
    return {row["session_id"]: Activity(row["newest"], row["went_on"]) for row in rows}


def _compressed_at(session: Session) -> float:
    """When the compression that touched it was over: the one that ended it, or else the one that made it."""
    ended = session.ended_at if session.end_reason == ROTATED else None
    return ended if ended is not None else session.started_at
