"""Sessions: created once, found by id, never renumbered."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.errors import NotFoundError, UsageError
from hermes.store.auto_titles import settle_title, unmake_title
from hermes.store.ids import new_session_id, snapshot_session
from hermes.store.schema import TableShape, as_text, as_time, kept_rows
from hermes.types import Session

MAX_ID_CHARS = 512
NOTES = "notes:"
"""Prefix of notebook names, which are used beside session ids."""
OFFSHOOTS = ("_branched_from", "_delegate_from")
"""Marks of other versions for a child that does not continue its parent."""
SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:", "[PRIOR CONTEXT —")
"""Openings of a child that continues a rotated session."""
ROTATION_TOLERANCE_SECONDS = 60
"""Tolerance in seconds: a child that begins with a summary may start this long before its parent's end."""
FIELDS = Session.__struct_fields__
STARTED, ENDED, COUNT = (FIELDS.index(name) for name in ("started_at", "ended_at", "message_count"))


class Listed(Struct, frozen=True):
    session: Session
    last_active: float
    preview: str


class Sessions:
    """The `sessions` table of one store. Every method runs inside the caller's transaction."""

    def __init__(self, shape: TableShape, messages: TableShape) -> None:
        self._shape = shape
        self._said = kept_rows(messages)

    def new_id(self, tx: Tx, now: float, random_hex: Callable[[int], str] = secrets.token_hex) -> str:
        """Return a new, unused session id."""
        session_id = new_session_id(now, random_hex)
        while self.exists(tx, session_id):
            session_id = new_session_id(now, random_hex)
        return session_id

    def create(self, tx: Tx, session: Session) -> Session:
        """Store a new session. Its id is one of ours, or a client's, which is kept unchanged."""
        check_foreign_id(session.id)
        if self.exists(tx, session.id):
            raise UsageError(f"session {session.id} already exists")
        self._shape.insert(tx, {name: getattr(session, name) for name in FIELDS})
        return session

    def exists(self, tx: Tx, session_id: str) -> bool:
        """Return True if a session has exactly this id."""
        return tx.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone() is not None

    def require(self, tx: Tx, session_id: str) -> None:
        """Raise NotFoundError unless a session has exactly this id."""
        if not self.exists(tx, session_id):
            raise _not_found(session_id)

    def get(self, tx: Tx, session_id: str) -> Session:
        """Return the session with exactly this id. Raises NotFoundError."""
        found = self.look_up(tx, session_id)
        if found is None:
            raise _not_found(session_id)
        return found

    def look_up(self, tx: Tx, session_id: str) -> Session | None:
        """Return the session with exactly this id, or None."""
        row = tx.execute(f"{self._shape.select} WHERE t.id = ?", (session_id,)).fetchone()
        return None if row is None else session_from_row(row)

    def find(self, tx: Tx, text: str) -> Session:
        """Return the session a person refers to: by id, by a unique prefix of one, or by title."""
        if (exact := self.look_up(tx, text)) is not None:
            return exact
        rows = tx.execute(
            f"{self._shape.select} WHERE substr(t.id, 1, ?) = ? OR {self._shape.field('title')} = ? "
            "ORDER BY t.started_at DESC LIMIT 6",
            (len(text), text, text),
        ).fetchall()
        if not rows or not text:
            raise _not_found(text)
        if len(rows) > 1:
            ids = ", ".join(row["id"] for row in rows[:5]) + (", …" if len(rows) > 5 else "")
            raise UsageError(f"'{text}' matches more than one session: {ids}", hint="Give more of the id")
        return session_from_row(rows[0])

    def recent(self, tx: Tx, *, limit: int, source: str | None = None, everything: bool = False) -> list[Listed]:
        """Return the sessions that were active last. Sessions that continue elsewhere after a rotation, and sessions
        whose messages were all retracted, are left out unless `everything`."""
        wanted = ["(:source IS NULL OR t.source = :source)"]
        if not everything:
            wanted.append(f"t.id NOT IN ({self._continued_sql()})")
            wanted.append(
                "t.id NOT IN (SELECT u.session_id FROM hermes_undone u WHERE NOT EXISTS "
                f"(SELECT 1 FROM messages t WHERE t.session_id = u.session_id AND {self._said}))"
            )
        rows = tx.execute(
            f"""
            SELECT s.*, a.last_active, (
                SELECT t.content FROM messages t WHERE t.session_id = s.id AND t.role = 'user' AND {self._said}
                ORDER BY t.id LIMIT 1
            ) AS preview
            FROM (
                SELECT t.id, coalesce(
                    (SELECT timestamp FROM messages m WHERE m.session_id = t.id ORDER BY m.id DESC LIMIT 1),
                    t.started_at
                ) AS last_active
                FROM sessions t WHERE {" AND ".join(wanted)} ORDER BY last_active DESC LIMIT :limit
            ) a JOIN ({self._shape.select}) s ON s.id = a.id
            ORDER BY a.last_active DESC
            """,
            {"source": source, "limit": limit},
        )
        return [
            Listed(session_from_row(row), as_time(row["last_active"]), as_text(row["preview"]) or "") for row in rows
        ]

    def set_title(self, tx: Tx, session_id: str, title: str | None) -> None:
        """Set or remove the title that a person chose. No title is made automatically after that."""
        self.get(tx, session_id)
        try:
            self._shape.update(tx, session_id, {"title": title})
        except sqlite3.IntegrityError as error:  # files of other versions may want titles to be unique
            raise UsageError(f"another session is called '{title}' already", hint="Choose another title") from error
        settle_title(tx, session_id)

    def unmake_title(self, tx: Tx, session_id: str, first_id: int, *, now: float) -> None:
        """Remove an automatic title that was made from messages since `first_id`, which were retracted."""
        if unmake_title(tx, session_id, first_id, now=now):
            self._shape.update(tx, session_id, {"title": None})

    def set_system_prompt(self, tx: Tx, session_id: str, prompt: str) -> None:
        """Store the session's prompt, so that it is the same, byte for byte, after a restart."""
        self._shape.update(tx, session_id, {"system_prompt": prompt})

    def end(self, tx: Tx, session_id: str, reason: str, *, now: float) -> None:
        self._shape.update(tx, session_id, {"ended_at": now, "end_reason": reason})

    def reopen(self, tx: Tx, session_id: str) -> None:
        self._shape.update(tx, session_id, {"ended_at": None, "end_reason": None})

    def detach(self, tx: Tx, session_id: str) -> None:
        """Remove a session from its lineage."""
        self._shape.update(tx, session_id, {"parent_session_id": None})

    def count_messages(self, tx: Tx, session_id: str, added: int) -> None:
        """Update the message count that existing files keep."""
        if "message_count" in self._shape.columns:
            tx.execute(
                "UPDATE sessions SET message_count = max(0, coalesce(message_count, 0) + ?) WHERE id = ?",
                (added, session_id),
            )
        else:
            tx.execute(
                "INSERT INTO hermes_session_extra (session_id, message_count) VALUES (:session, max(0, :added)) "
                "ON CONFLICT (session_id) DO UPDATE SET message_count = max(0, coalesce(message_count, 0) + :added)",
                {"session": session_id, "added": added},
            )

    def continuation(self, tx: Tx, session_id: str) -> str | None:
        """Return the child to which an older version's compression by rotation moved this session; None if people went
        on writing here, as with a client that keeps its id."""
        parent = self.look_up(tx, session_id)
        if parent is None or parent.end_reason != "compression":
            return None
        row = tx.execute(
            f"{self._shape.select} WHERE t.id IN ({self._children_sql()}) AND {self._continues(':ended')} "
            f"AND {self._newest('t.id')} > coalesce({self._newest_said(':parent')}, 0) "
            "ORDER BY t.started_at DESC, t.id DESC LIMIT 1",
            {"parent": session_id, "ended": parent.ended_at or 0},
        ).fetchone()
        return None if row is None else str(row["id"])

    def live_id(self, tx: Tx, session_id: str) -> str:
        """Return the id of the session in which a rotated conversation continues; the same id if it was never
        rotated."""
        return self._forward(tx, session_id)[-1]

    def _forward(self, tx: Tx, session_id: str) -> list[str]:
        """Return a session and its continuations, in order."""
        chain = [session_id]
        while (following := self.continuation(tx, chain[-1])) is not None and following not in chain:
            chain.append(following)
        return chain

    def lineage(self, tx: Tx, session_id: str) -> list[str]:
        """Return every session of a rotated conversation, oldest first, including this one."""
        chain = [session_id]
        while (before := self._rotated_from(tx, chain[0])) is not None and before not in chain:
            chain.insert(0, before)
        return chain[:-1] + self._forward(tx, session_id)

    def _rotated_from(self, tx: Tx, session_id: str) -> str | None:
        """Return the parent if it continues in this session; None for other children."""
        parent = self.get(tx, session_id).parent_session_id
        return parent if parent is not None and self.continuation(tx, parent) == session_id else None

    def children(self, tx: Tx, session_id: str) -> list[Session]:
        rows = tx.execute(f"{self._shape.select} WHERE t.id IN ({self._children_sql()})", {"parent": session_id})
        return [session_from_row(row) for row in rows]

    def _children_sql(self) -> str:
        beside = "SELECT session_id FROM hermes_session_extra WHERE parent_session_id = :parent"
        if "parent_session_id" not in self._shape.columns:
            return beside
        return f"SELECT id FROM sessions WHERE parent_session_id = :parent UNION {beside}"

    def _continues(self, ended_at: str) -> str:
        """Return the condition on a child `t` that continues its parent: no clean-up discarded it, it did not branch
        off, and it began at the parent's end, or shortly before if it begins with a summary."""
        conditions = [
            f"coalesce({self._shape.field('end_reason')}, '') <> 'orphaned_compression'",
            "t.source <> 'tool'",
        ]
        if "model_config" in self._shape.columns:
            conditions += [f"instr(coalesce(t.model_config, ''), '\"{mark}\"') = 0" for mark in OFFSHOOTS]
        summary = " OR ".join(f"m.content LIKE '{opening}%'" for opening in SUMMARIES)
        born = f"EXISTS (SELECT 1 FROM messages m WHERE m.session_id = t.id AND ({summary}))"
        conditions.append(
            f"(t.started_at >= {ended_at} OR (t.started_at >= {ended_at} - {ROTATION_TOLERANCE_SECONDS} AND {born}))"
        )
        return " AND ".join(conditions)

    def _newest(self, session_id: str) -> str:
        return f"coalesce((SELECT max(m.id) FROM messages m WHERE m.session_id = {session_id}), 0)"

    def _newest_said(self, session_id: str) -> str:
        said = f"SELECT m.id FROM messages m WHERE m.session_id = {session_id} AND m.role = 'user'"
        return f"({said} ORDER BY m.id DESC LIMIT 1)"

    def _continued_sql(self) -> str:
        """Return the query for sessions that ended by compression and continue in a child."""
        return f"""
            SELECT p.id FROM sessions t LEFT JOIN hermes_session_extra x ON x.session_id = t.id
            JOIN ({self._shape.select}) p ON p.id = {self._shape.field("parent_session_id")}
            WHERE p.end_reason = 'compression' AND {self._continues("coalesce(p.ended_at, 0)")}
            AND {self._newest("t.id")} > coalesce({self._newest_said("p.id")}, 0)
        """


def _not_found(session_id: str) -> NotFoundError:
    return NotFoundError(f"there is no session '{session_id}'", hint="`hermes sessions list` shows them")


def session_from_row(row: sqlite3.Row) -> Session:
    """Return the session stored in a row that begins with its fields; a missing message count becomes 0."""
    values = list(row[: len(FIELDS)])
    values[STARTED] = as_time(values[STARTED])
    values[ENDED] = None if values[ENDED] is None else as_time(values[ENDED])
    values[COUNT] = values[COUNT] or 0
    return Session(*values)


def check_foreign_id(session_id: str) -> None:
    """Raise UsageError for an invalid session id: empty, too long, not printable, reserved, or a snapshot id."""
    if not session_id or len(session_id) > MAX_ID_CHARS or not session_id.isprintable():
        raise UsageError(
            f"{session_id[:80]!r} cannot be a session id", hint=f"Use 1 to {MAX_ID_CHARS} printable characters"
        )
    if session_id.startswith(NOTES):
        raise UsageError(f"{session_id[:80]} cannot be a session id", hint=f"Names that begin with {NOTES} are taken")
    if snapshot_session(session_id) is not None:
        raise UsageError(f"{session_id} is the name of a snapshot", hint="A snapshot can only be read")
