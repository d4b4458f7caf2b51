"""Routes: which session a gateway's session key refers to. One key has one live session; the binding is a row.

Other versions keep their own bindings, in a table or a file. Of two bindings of one key the newer is in force. If
the other version's table has the key, our bindings are written there too, so that both programs use one session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.errors import StoreDamagedError
from hermes.files import NOT_UTF8, read_file
from hermes.store.sessions import Sessions
from hermes.types import Json


class Binding(Struct, frozen=True):
    """The session of a key, and the time of the binding."""

    session_id: str
    updated_at: float


class Routes:
    """The bindings of one store. Every method runs inside the caller's transaction."""

    def __init__(self, sessions: Sessions, old_file: Path, has_old_table: bool) -> None:
        self._sessions = sessions
        self._old_file = old_file
        self._has_old_table = has_old_table

    def bind(self, tx: Tx, session_key: str, session_id: str, *, now: float) -> None:
        """Bind `session_key` to `session_id`, in place of any earlier binding."""
        self._sessions.require(tx, session_id)
        tx.execute(
            "INSERT INTO hermes_routes VALUES (?, ?, ?) ON CONFLICT (session_key) "
            "DO UPDATE SET session_id = excluded.session_id, updated_at = excluded.updated_at",
            (session_key, session_id, now),
        )
        if self._has_old_table:
            tx.execute(
                "UPDATE gateway_routing SET updated_at = :now, "
                "entry_json = json_set(entry_json, '$.session_id', :session, '$.updated_at', :shown) "
                "WHERE rowid = (SELECT rowid FROM gateway_routing WHERE session_key = :key AND json_valid(entry_json) "
                "AND json_type(entry_json) = 'object' ORDER BY updated_at DESC LIMIT 1)",
                {
                    "key": session_key,
                    "session": session_id,
                    "now": now,
                    "shown": datetime.fromtimestamp(now).isoformat(),
                },
            )

    def lookup(self, tx: Tx, session_key: str) -> str | None:
        """Return the session that a key is bound to, here or by another version; None for a new key or a deleted
        session."""
        row = tx.execute("SELECT * FROM hermes_routes WHERE session_key = ?", (session_key,)).fetchone()
        ours = None if row is None else Binding(str(row["session_id"]), row["updated_at"])
        bound = self._in_force(tx, ours, self._old_entries(tx, session_key).get(session_key))
        return bound if bound is not None and self._sessions.exists(tx, bound) else None

    def keys_of(self, tx: Tx, session_id: str) -> list[str]:
        rows = tx.execute("SELECT session_key FROM hermes_routes WHERE session_id = ? ORDER BY 1", (session_id,))
        return [row["session_key"] for row in rows]

    def all(self, tx: Tx) -> dict[str, str]:
        """Return every binding in force."""
        ours, theirs = self._our_entries(tx), self._old_entries(tx)
        bindings = {key: self._in_force(tx, ours.get(key), theirs.get(key)) for key in {**theirs, **ours}}
        there = {str(row["id"]) for row in tx.execute("SELECT id FROM sessions")}
        return {key: bound for key, bound in bindings.items() if bound in there}

    def elsewhere(self, tx: Tx) -> set[str]:
        """Return the sessions that another version's keys refer to, in force here or not."""
        return {binding.session_id for binding in self._old_entries(tx).values()}

    def differing(self, tx: Tx) -> dict[str, tuple[str, str]]:
        """Return keys with different sessions here and in another version: `{key: (ours, theirs)}`."""
        ours = self._our_entries(tx)
        theirs = self._old_entries(tx) if ours else {}
        pairs = {key: (ours[key].session_id, theirs[key].session_id) for key in ours.keys() & theirs.keys()}
        there = {str(row["id"]) for row in tx.execute("SELECT id FROM sessions")}
        return {key: pair for key, pair in pairs.items() if pair[0] != pair[1] and there.issuperset(pair)}

    def _in_force(self, tx: Tx, ours: Binding | None, theirs: Binding | None) -> str | None:
        if ours is None or theirs is None:
            found = ours or theirs
            return found.session_id if found else None
        newer = theirs.updated_at > ours.updated_at and self._sessions.exists(tx, theirs.session_id)
        return theirs.session_id if newer else ours.session_id

    def _our_entries(self, tx: Tx) -> dict[str, Binding]:
        rows = tx.execute("SELECT * FROM hermes_routes")
        return {row["session_key"]: Binding(row["session_id"], row["updated_at"]) for row in rows}

    def _old_entries(self, tx: Tx, session_key: str | None = None) -> dict[str, Binding]:
        """Return the other version's bindings, of one key or of all. Its file counts only while its table is empty."""
        if not self._has_old_table or tx.execute("SELECT 1 FROM gateway_routing LIMIT 1").fetchone() is None:
            return old_file_entries(self._old_file)
        rows = tx.execute(
            "SELECT session_key, entry_json FROM gateway_routing "
            "WHERE :key IS NULL OR session_key = :key ORDER BY updated_at",
            {"key": session_key},
        )
        return {row["session_key"]: bound for row in rows if (bound := _bound_session(_parse(row["entry_json"])))}


def old_file_entries(path: Path) -> dict[str, Binding]:
    """Return the bindings of `sessions/sessions.json`, which early versions kept; empty if the file does not exist."""
    try:
        document = _parse(read_file(path).decode())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or NOT_UTF8
        raise StoreDamagedError(f"cannot read {path}: {why}", hint="Mend it or move it away") from error
    if not isinstance(document, Mapping):
        raise StoreDamagedError(f"{path} is not a JSON object", hint="Mend it or move it away; nothing was changed")
    return {str(key): bound for key, entry in document.items() if (bound := _bound_session(entry))}


def _parse(text: str | bytes | None) -> Json:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None


def _bound_session(entry: Json) -> Binding | None:
    if not isinstance(entry, Mapping) or not isinstance(session_id := entry.get("session_id"), str) or not session_id:
        return None
    return Binding(session_id, _local_time(entry.get("updated_at")))


def _local_time(text: Json) -> float:
    """Return the Unix time of another version's timestamp, which is in local time; 0 for invalid values."""
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else 0.0
    except (ValueError, OverflowError, OSError):
        return 0.0
