"""The case: all that an audit needs of a store's sessions, read in one transaction and judged without further reads.

Messages of sessions, reduced to the properties that identify copies.

The activity of sessions: where people wrote messages, as opposed to compressions that copied them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hermes.audit.damage import ORPHANED, ROTATED
from hermes.db.engine import Tx
from hermes.store.copies import SESSION_META_ROLE, SUMMARY
from hermes.store.routes import Routes
from hermes.store.schema import TableShape, as_text, live_rows, read_shape
from hermes.store.sessions import OFFSHOOTS, ROTATION_TOLERANCE_SECONDS, Sessions
from hermes.types import Session


@dataclass(frozen=True, slots=True)
class SaidMessage:
    id: int
    role: str
    time: float
    wording: int
    """A hash of role and text, to compare messages."""
    length: int
    signs: str
    """Its tool calls, the call that it answers, and its id on a platform: a compression writes none of these."""
    is_summary: bool
    is_live: bool

    def repeats(self, other: SaidMessage) -> bool:
        return (self.wording, self.signs) == (other.wording, other.signs)


def read_messages(tx: Tx, shape: TableShape, sessions: Collection[str], which: str) -> dict[str, list[SaidMessage]]:
    """Return the messages of some sessions that satisfy the condition `which`, in order. Reads them in one pass,
    because files of others may lack an index by session."""
    own = [shape.field(name) for name in ("tool_call_id", "tool_calls", "platform_message_id")]
    signs = " || ".join(f"coalesce({field}, '')" for field in own)
    rows = tx.execute(
        f"SELECT t.id, t.session_id, t.role, t.content, CAST(t.timestamp AS REAL) AS time, {signs} AS signs, "
        f"{live_rows(shape)} AS live FROM messages t LEFT JOIN hermes_message_extra x ON x.message_id = t.id "
        f"WHERE t.session_id IN (SELECT value FROM json_each(?)) AND t.role <> '{SESSION_META_ROLE}' "
        f"AND {which} ORDER BY t.id",
        (json.dumps(sorted(sessions)),),
    )
    found: dict[str, list[SaidMessage]] = {}
    for row in rows:
        text = as_text(row["content"]) or ""
        message = SaidMessage(
            row["id"],
            row["role"],
            row["time"] or 0.0,
            hash((row["role"], text.strip())),
            len(text),
            str(row["signs"]),
            SUMMARY.match(text) is not None,
            bool(row["live"]),
        )
        found.setdefault(row["session_id"], []).append(message)
    return found


COMPRESSION_FILL_SECONDS = 10.0
"""Time in which a compression fills the session that it creates."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Ids of a session's newest live message, and of the newest that a person wrote there: after the compression that
    ended the session, else after the one that created it. 0 for no message."""

    newest: int = 0
    went_on: int = 0


def read_activity(tx: Tx, shape: TableShape, sessions: Mapping[str, Session]) -> dict[str, Activity]:
    """Return the activity of every session whose messages decide a finding."""
    wanted, live = _of_interest(sessions.values(), sessions), live_rows(shape)
    edges = {
        row["session_id"]: (row["first"], row["newest"])
        for row in tx.execute(
            "SELECT t.session_id, min(t.id) AS first, max(t.id) AS newest FROM messages t "
            f"WHERE t.session_id IN (SELECT value FROM json_each(?)) AND {live} GROUP BY t.session_id",
            (json.dumps(sorted(wanted)),),
        )
    }
    words = read_messages(tx, shape, wanted, f"t.role = 'user' AND {live}")
    filled = _first_filled(sessions, {key: first for key, (first, _) in edges.items()})
    return {
        key: Activity(newest, _went_on(sessions[key], words, filled.get(key))) for key, (_, newest) in edges.items()
    }


def _went_on(session: Session, words: Mapping[str, list[SaidMessage]], filled: int | None) -> int:
    own = [said for said in words.get(session.id, ()) if not said.is_summary]
    if session.end_reason == ROTATED and session.ended_at is not None:
        later = [said.id for said in own if said.time > session.ended_at or (filled is not None and said.id > filled)]
    else:
        carried = {said.wording for said in words.get(session.parent_session_id or "", ())}
        birth = session.started_at + COMPRESSION_FILL_SECONDS
        later = [said.id for said in own if said.time > birth or said.wording not in carried]
    return max(later, default=0)


def _first_filled(sessions: Mapping[str, Session], first: Mapping[str, int]) -> dict[str, int]:
    """Return, for each parent, the first message in any child: later messages of the parent are in no child."""
    filled: dict[str, int] = {}
    for key, row_id in first.items():
        parent = sessions[key].parent_session_id
        if parent is not None:
            filled[parent] = max(row_id, filled.get(parent, 0))
    return filled


def _of_interest(every: Iterable[Session], sessions: Mapping[str, Session]) -> set[str]:
    """Return sessions with a parent, parents, sessions that a compression ended, and open ones that share a key."""
    found: set[str] = set()
    by_key: dict[str, str] = {}
    for session in every:
        if session.parent_session_id in sessions:
            found |= {session.id, str(session.parent_session_id)}
        if session.end_reason == ROTATED:
            found.add(session.id)
        if session.session_key and session.ended_at is None and session.end_reason is None:
            first = by_key.setdefault(session.session_key, session.id)
            found |= {first, session.id} if first != session.id else set()
    return found


MAX_ROTATION_SECONDS = 600.0
"""Longest time between a parent's end and a child that the same compression certainly created."""
UNKEYED = frozenset({"api_server", "cron"})
"""Sources whose sessions are addressed by id, and where several may share one key."""
SESSION_FIELDS = (
    "user_id",
    "session_key",
    "chat_id",
    "chat_type",
    "thread_id",
    "parent_session_id",
    "end_reason",
)


@dataclass(frozen=True)
class Case:
    """Sessions by id, the bindings in force, the keys that this version bound, and the activity of sessions."""

    sessions: dict[str, Session]
    routes: dict[str, str]
    our_keys: frozenset[str]
    activity: dict[str, Activity]
    has_older_traces: bool
    """True if an older version has ever used this file; otherwise there is nothing to repair."""
    bound_elsewhere: frozenset[str] = frozenset()
    """Sessions to which another version's key leads, although our key may lead elsewhere: someone began anew since."""
    offshoots: frozenset[str] = frozenset()
    """Sessions marked as branches or as runs of sub-agents."""
    summarised: frozenset[str] = frozenset()
    """Sessions with a live message that begins like a summary."""

    def said(self, session: Session) -> Activity:
        return self.activity.get(session.id, Activity())

    def keys_of(self, session: Session) -> list[str]:
        return self._keys.get(session.id, [])

    def parent(self, child: Session) -> Session | None:
        """Return the session that a compression continued in `child`, of any conversation."""
        parent = self.sessions.get(child.parent_session_id or "")
        if parent is None or parent.end_reason != ROTATED or child.id in self.offshoots:
            return None
        early = (parent.ended_at or 0) - child.started_at
        return parent if early <= 0 or (early <= ROTATION_TOLERANCE_SECONDS and child.id in self.summarised) else None

    def rotated_from(self, child: Session) -> Session | None:
        """Return the parent if it belongs to the same conversation."""
        parent = self.parent(child)
        return parent if parent is not None and not self.are_strangers(parent, child) else None

    def are_strangers(self, parent: Session, child: Session) -> bool:
        """Return True if two sessions certainly belong to different conversations. Missing data is not evidence."""
        if parent.chat_id and child.chat_id:
            apart = bool(parent.thread_id and child.thread_id) and parent.thread_id != child.thread_id
            return parent.chat_id != child.chat_id or apart
        if parent.session_key and child.session_key:
            return parent.session_key != child.session_key
        known = bool(parent.user_id and child.user_id)
        return known and parent.user_id != child.user_id and (self._is_direct(parent) or self._is_direct(child))

    def children(self, parent: Session) -> list[Session]:
        """Return the sessions that compressions created from a session, in order, within its conversation."""
        return self._children.get(parent.id, [])

    def has_stranger(self, parent: Session) -> bool:
        """Return True if a compression created a session of another conversation from this one."""
        return parent.id in self._with_strangers

    def family(self, session: Session) -> list[Session]:
        """Return every session of a rotated conversation, this one included, the first one first."""
        root, seen = session, {session.id}
        while (before := self.rotated_from(root)) is not None and before.id not in seen:
            seen.add(before.id)
            root = before
        found = [root]
        for member in found:
            found += [child for child in self.children(member) if child not in found]
        return found

    def home(self, members: Sequence[Session], bound: Session) -> Session:
        """Return the session among `members` in which the conversation of a bound session continues.

        The binding is trusted, unless a person wrote in another session after every message of the bound one. From a
        session that a compression ended it leads to the last child with messages.
        """
        newest = self.said(bound).newest
        others = [member for member in members if member != bound and may_reopen(member)]
        elsewhere = [member for member in others if self.said(member).went_on > newest]
        if elsewhere:
            return max(elsewhere, key=lambda member: self.said(member).went_on)
        if bound.end_reason != ROTATED:
            return bound
        following = self.last_continuation(bound)
        return bound if self.said(bound).went_on > self.said(following).newest else following

    def last_continuation(self, session: Session) -> Session:
        """Return the last descendant that has messages and was not ended by a clean-up, or the session itself."""
        seen = {session.id}
        while (following := self.next_continuation(session)) is not None and following.id not in seen:
            session = following
            seen.add(session.id)
        return session

    def next_continuation(self, session: Session) -> Session | None:
        """Return the child that continues a session after a compression: it has messages and was not ended by a
        clean-up."""
        if session.end_reason != ROTATED:
            return None
        children = [child for child in self.children(session) if child.end_reason != ORPHANED]
        return next((child for child in reversed(children) if self.said(child).newest), None)

    def is_routed_source(self, session: Session) -> bool:
        """Return True if keys lead to sessions of this source; they never do for a terminal's."""
        by_key = session.source in self._routed_sources and session.source not in UNKEYED
        return by_key or bool(session.session_key or session.chat_id)

    def _is_direct(self, session: Session) -> bool:
        """Return True for a chat between two people, where another user means another conversation."""
        return session.chat_type == "dm" or any(":dm:" in key for key in self.keys_of(session))

    @cached_property
    def with_parents(self) -> list[Session]:
        return [session for session in self.sessions.values() if session.parent_session_id is not None]

    @cached_property
    def _keys(self) -> dict[str, list[str]]:
        keys: dict[str, list[str]] = {}
        for key, bound in sorted(self.routes.items()):
            keys.setdefault(bound, []).append(key)
        return keys

    @cached_property
    def _children(self) -> dict[str, list[Session]]:
        children: dict[str, list[Session]] = {}
        for session in sorted(self.with_parents, key=lambda child: (child.started_at, child.id)):
            if (parent := self.rotated_from(session)) is not None:
                children.setdefault(parent.id, []).append(session)
        return children

    @cached_property
    def _with_strangers(self) -> set[str]:
        pairs = ((self.parent(child), child) for child in self.with_parents)
        return {parent.id for parent, child in pairs if parent is not None and self.are_strangers(parent, child)}

    @cached_property
    def _routed_sources(self) -> set[str]:
        return {self.sessions[bound].source for bound in self.routes.values()}


def read_case(tx: Tx, old_routes_file: Path) -> Case:
    """Read the case of an open file that has all of our tables, or was lent them."""
    session_shape, message_shape = read_shape(tx)
    sessions = {session.id: session for session in _read_sessions(tx, session_shape)}
    tables = {row["name"] for row in tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    routes = routes_of(tx, old_routes_file)
    ours = frozenset(str(row["session_key"]) for row in tx.execute("SELECT session_key FROM hermes_routes"))
    return Case(
        sessions,
        routes.all(tx),
        ours,
        read_activity(tx, message_shape, sessions),
        has_older_traces=bool({"gateway_routing", "schema_version"} & tables) or old_routes_file.exists(),
        bound_elsewhere=frozenset(routes.elsewhere(tx)) if ours else frozenset(),
        offshoots=_read_offshoots(tx, session_shape),
        summarised=_read_summarised(tx, message_shape),
    )


def routes_of(tx: Tx, old_routes_file: Path) -> Routes:
    found = tx.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'gateway_routing'").fetchone()
    return Routes(Sessions(*read_shape(tx)), old_routes_file, found is not None)


def is_open(session: Session) -> bool:
    return session.ended_at is None and session.end_reason is None


def may_reopen(session: Session) -> bool:
    """Return True if a session is open or was ended only by a compression, not by a person or a reset."""
    return is_open(session) or session.end_reason in (ROTATED, ORPHANED)


def _read_sessions(tx: Tx, shape: TableShape) -> Iterator[Session]:
    fields = ", ".join(f"{shape.field(name)} AS {name}" for name in SESSION_FIELDS)
    rows = tx.execute(
        f"SELECT t.id, t.source, CAST(t.started_at AS REAL) AS started_at, {fields}, "
        f"CAST({shape.field('ended_at')} AS REAL) AS ended_at FROM sessions t "
        "LEFT JOIN hermes_session_extra x ON x.session_id = t.id WHERE typeof(t.id) = 'text'"
    )
    names = ("id", "source", "started_at", *SESSION_FIELDS, "ended_at")
    for row in rows:
        yield Session(**dict(zip(names, row, strict=True)))


def _read_offshoots(tx: Tx, shape: TableShape) -> frozenset[str]:
    marked = ["t.source = 'tool'"]
    if "model_config" in shape.columns:
        marked += [f"instr(t.model_config, '\"{mark}\"')" for mark in OFFSHOOTS]
    rows = tx.execute(f"SELECT t.id FROM sessions t WHERE {' OR '.join(marked)}")
    return frozenset(str(row["id"]) for row in rows)


def _read_summarised(tx: Tx, shape: TableShape) -> frozenset[str]:
    rows = tx.execute(
        f"SELECT t.session_id, substr(t.content, 1, 64) AS opening FROM messages t "
        f"WHERE t.content LIKE '[%' AND {live_rows(shape)}"
    )
    return frozenset(row["session_id"] for row in rows if SUMMARY.match(as_text(row["opening"]) or ""))
