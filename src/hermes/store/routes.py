"""Routes: which session a gateway's session key means. One key has one live session; the binding is a row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from hermes.db.engine import Tx
from hermes.errors import NotFoundError, StoreDamagedError
from hermes.files import read_file
from hermes.store.sessions import Sessions
from hermes.types import Json


class Routes:
    """The bindings of one store. Every method runs inside the caller's transaction."""

    def __init__(self, sessions: Sessions, old_file: Path, has_old_table: bool) -> None:
        self._sessions = sessions
        self._old_file = old_file
        self._has_old_table = has_old_table

    def bind(self, tx: Tx, session_key: str, session_id: str, *, now: float) -> None:
        """From now on `session_key` means `session_id`, and nothing else."""
        if not self._sessions.exists(tx, session_id):
            raise NotFoundError(f"there is no session '{session_id}'")
        tx.execute(
            "INSERT INTO hermes_routes VALUES (?, ?, ?) ON CONFLICT (session_key) "
            "DO UPDATE SET session_id = excluded.session_id, updated_at = excluded.updated_at",
            (session_key, session_id, now),
        )

    def lookup(self, tx: Tx, session_key: str) -> str | None:
        """The session that a key is bound to, here or by an older version; None for a new key or a deleted session."""
        row = tx.execute("SELECT session_id FROM hermes_routes WHERE session_key = ?", (session_key,)).fetchone()
        bound = self._old_entries(tx).get(session_key) if row is None else str(row["session_id"])
        return bound if bound is not None and self._sessions.exists(tx, bound) else None

    def keys_of(self, tx: Tx, session_id: str) -> list[str]:
        """The keys that we have bound to a session."""
        rows = tx.execute("SELECT session_key FROM hermes_routes WHERE session_id = ? ORDER BY 1", (session_id,))
        return [row["session_key"] for row in rows]

    def all(self, tx: Tx) -> dict[str, str]:
        """Every binding in force, ours over those of older versions."""
        ours = {row["session_key"]: row["session_id"] for row in tx.execute("SELECT * FROM hermes_routes")}
        bindings = {**self._old_entries(tx), **ours}
        return {key: bound for key, bound in bindings.items() if self._sessions.exists(tx, bound)}

    def _old_entries(self, tx: Tx) -> dict[str, str]:
        rows = []
        if self._has_old_table:
            rows = tx.execute("SELECT session_key, entry_json FROM gateway_routing ORDER BY updated_at").fetchall()
        if not rows:
            return old_file_entries(self._old_file)
        return {row["session_key"]: bound for row in rows if (bound := _bound_session(_parse(row["entry_json"])))}


def old_file_entries(path: Path) -> dict[str, str]:
    """The bindings of `sessions/sessions.json`, which early versions kept; none when there is no such file."""
    try:
        document = _parse(read_file(path).decode())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise StoreDamagedError(f"cannot read {path}: {why}", hint="Mend it or move it away") from error
    if not isinstance(document, Mapping):
        raise StoreDamagedError(f"{path} is not a JSON object", hint="Mend it or move it away; nothing was changed")
    return {str(key): bound for key, entry in document.items() if (bound := _bound_session(entry))}


def _parse(text: str | bytes | None) -> Json:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None


def _bound_session(entry: Json) -> str | None:
    session_id = entry.get("session_id") if isinstance(entry, Mapping) else None
    return session_id if isinstance(session_id, str) and session_id else None
