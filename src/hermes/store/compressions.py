"""Compressions: one row beside the log, swapped in by compare-and-set on the epoch.

The live view, which the model sees of a session: a pure function of the latest compression and the messages.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import asdict, replace

from hermes.db.engine import Tx
from hermes.errors import NotFoundError, StaleError, UsageError
from hermes.store.ids import snapshot_id
from hermes.store.messages import Messages
from hermes.store.sessions import Sessions
from hermes.types import Compression, LiveView, Message


def live_view(session_id: str, compression: Compression | None, messages: Iterable[Message]) -> LiveView:
    """Return the view of `session_id` after `compression`.

    `messages` may hold more than is needed (the whole history, other sessions); only the session's own count. A message
    after the horizon is always in the view, once, in order, whoever wrote it and however late.
    """
    own = sorted({message.id: message for message in messages if message.session_id == session_id}.items())
    if compression is None:
        return LiveView(session_id, 0, (), None, tuple(message for _, message in own))
    kept = set(compression.kept_ids)
    return LiveView(
        session_id=session_id,
        epoch=compression.epoch,
        head=tuple(m for key, m in own if key in kept and key <= compression.horizon_message_id),
        summary=compression.summary,
        tail=tuple(m for key, m in own if key > compression.horizon_message_id),
    )


def grow(view: LiveView, later: Iterable[Message]) -> LiveView:
    """Return the view with later messages appended in order, under the same compression."""
    return replace(view, tail=(*view.tail, *later))


MIN_SNAPSHOT_DISTANCE_SECONDS = 2e-6
"""Minimum distance of a session's snapshots in seconds: their ids contain the time in microseconds."""


class Failures(Struct, frozen=True):
    count: int = 0
    not_before: float = 0.0
    reason: str = ""


class SeenSession(Struct, frozen=True):
    """The state that a compression is decided from: the view, the newest message, and the failures so far."""

    view: LiveView
    last_id: int
    failures: Failures


class Compressions:
    """The compression rows of one store. Every method runs inside the caller's transaction."""

    def __init__(self, sessions: Sessions, messages: Messages) -> None:
        self._sessions = sessions
        self._messages = messages

    def latest(self, tx: Tx, session_id: str) -> Compression | None:
        """Return the compression in force, or None."""
        row = tx.execute(
            "SELECT * FROM hermes_compressions WHERE session_id = ? ORDER BY epoch DESC LIMIT 1",
            (session_id,),
        ).fetchone()
        return None if row is None else compression_from_row(row)

    def epoch(self, tx: Tx, session_id: str) -> int:
        """Return the epoch of the compression in force, or 0."""
        row = tx.execute("SELECT max(epoch) FROM hermes_compressions WHERE session_id = ?", (session_id,)).fetchone()
        return int(row[0] or 0)

    def all(self, tx: Tx, session_id: str) -> list[Compression]:
        """Return every compression of a session, oldest first."""
        rows = tx.execute("SELECT * FROM hermes_compressions WHERE session_id = ? ORDER BY epoch", (session_id,))
        return [compression_from_row(row) for row in rows]

    def commit(self, tx: Tx, compression: Compression) -> None:
        """Insert a compression, which changes the view. Raises StaleError, and changes nothing, if another one came
        first."""
        self._sessions.get(tx, compression.session_id)
        latest = self.latest(tx, compression.session_id)
        if compression.epoch != (latest.epoch if latest else 0) + 1:
            raise StaleError(f"session {compression.session_id} was compressed by someone else meanwhile")
        if latest is not None and compression.horizon_message_id < latest.horizon_message_id:
            raise UsageError(f"the horizon of session {compression.session_id} cannot move back")
        seen = self._messages.last_id(tx, compression.session_id)
        if not compression.horizon_message_id <= compression.upto_message_id <= seen or any(
            key > compression.horizon_message_id for key in compression.kept_ids
        ):
            raise UsageError("a compression covers only messages that its compressor has seen")
        values = {**asdict(compression), "kept_ids": json.dumps(compression.kept_ids)}
        marks = ", ".join(f":{name}" for name in values)
        tx.execute(f"INSERT INTO hermes_compressions ({', '.join(values)}) VALUES ({marks})", values)

    def look(self, tx: Tx, session_id: str) -> SeenSession:
        """Return the state of a session. Raises NotFoundError if it does not exist."""
        view = self.view(tx, session_id)
        return SeenSession(view, self._messages.last_id(tx, session_id), read_failures(tx, session_id))

    def swap(
        self, tx: Tx, seen: SeenSession, horizon_id: int, kept_ids: tuple[int, ...], summary: str, *, now: float
    ) -> tuple[str, LiveView]:
        """Replace messages up to the horizon by a summary, except those in `kept_ids`, and clear earlier failures.
        Returns the snapshot's id and the new view. Raises the errors of `commit`."""
        session_id = seen.view.session_id
        latest = self.latest(tx, session_id)
        if latest is not None:
            now = max(now, latest.created_at + MIN_SNAPSHOT_DISTANCE_SECONDS)
        snapshot = snapshot_id(session_id, now)
        row = Compression(session_id, seen.view.epoch + 1, horizon_id, seen.last_id, kept_ids, summary, snapshot, now)
        self.commit(tx, row)
        tx.execute("DELETE FROM hermes_compression_failures WHERE session_id = ?", (session_id,))
        return snapshot, self.view(tx, session_id)

    def view(self, tx: Tx, session_id: str) -> LiveView:
        """Return what the model sees now. Raises NotFoundError if the session does not exist."""
        self._sessions.get(tx, session_id)
        latest = self.latest(tx, session_id)
        return live_view(session_id, latest, self._messages.live(tx, session_id, latest))

    def view_since(self, tx: Tx, seen: LiveView) -> LiveView:
        """Return what the model sees now, given an earlier view. Reads only newer messages, or everything if the
        session was compressed since. Later edits of old rows by other programs are not picked up."""
        if not seen.tail or self.epoch(tx, seen.session_id) != seen.epoch:
            return self.view(tx, seen.session_id)
        self._sessions.require(tx, seen.session_id)
        return grow(seen, self._messages.live_after(tx, seen.session_id, seen.tail[-1].id))

    def snapshot(self, tx: Tx, snapshot_id: str) -> LiveView:
        """Return the view as it was just before the compression that made this snapshot."""
        row = tx.execute("SELECT * FROM hermes_compressions WHERE snapshot_id = ?", (snapshot_id,)).fetchone()
        if row is None:
            raise NotFoundError(f"there is no snapshot '{snapshot_id}'")
        taken = compression_from_row(row)
        before = tx.execute(
            "SELECT * FROM hermes_compressions WHERE session_id = ? AND epoch = ?",
            (taken.session_id, taken.epoch - 1),
        ).fetchone()
        previous = None if before is None else compression_from_row(before)
        return self._view_upto(tx, taken, previous)

    def swapped(self, tx: Tx, compression: Compression) -> LiveView:
        """Return the view as it was just after a compression, without messages that arrived while it ran."""
        return self._view_upto(tx, compression, compression)

    def _view_upto(self, tx: Tx, seen: Compression, in_force: Compression | None) -> LiveView:
        messages = self._messages.live(tx, seen.session_id, in_force)
        known = [message for message in messages if message.id <= seen.upto_message_id]
        return live_view(seen.session_id, in_force, known)


def compression_from_row(row: sqlite3.Row) -> Compression:
    values = {name: row[name] for name in Compression.__struct_fields__}
    return Compression(**{**values, "kept_ids": tuple(json.loads(values["kept_ids"]))})


def read_failures(tx: Tx, session_id: str) -> Failures:
    """Return the failures since the last success."""
    row = tx.execute("SELECT * FROM hermes_compression_failures WHERE session_id = ?", (session_id,)).fetchone()
    return Failures() if row is None else Failures(row["failures"], row["not_before"], row["reason"])


def record_failure(tx: Tx, session_id: str, failures: Failures) -> None:
    """Store a failure, so that the waiting time survives a restart."""
    tx.execute(
        "INSERT OR REPLACE INTO hermes_compression_failures VALUES (?, ?, ?, ?)",
        (session_id, failures.count, failures.not_before, failures.reason),
    )
