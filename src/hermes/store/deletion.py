"""Deleting a conversation: plan what to remove, then remove it."""

from __future__ import annotations

from msgspec import Struct

from hermes.db import lanes, leases, queue_items
from hermes.db.engine import Tx
from hermes.store.ids import SESSIONS, compression_lease
from hermes.store.memory_rows import forget_place
from hermes.store.schema import TableShape
from hermes.store.search import Search
from hermes.store.sessions import Sessions
from hermes.store.synced import UnsyncedMessages


class Deletion(Struct, frozen=True):
    """Counts of what deleting a conversation removes. A rotated conversation includes all of its sessions."""

    session_ids: tuple[str, ...]
    messages: int
    snapshots: int
    queued: int
    routes: int


OLD_ROUTE = "CASE WHEN json_valid(entry_json) THEN json_extract(entry_json, '$.session_id') END"


class Deletions:
    """Deletes conversations from one store. Every method runs inside the caller's transaction."""

    def __init__(
        self, sessions: Sessions, unsynced: UnsyncedMessages, search: Search, shape: TableShape, has_old_routes: bool
    ) -> None:
        self._sessions = sessions
        self._unsynced = unsynced
        self._search = search
        self._shape = shape
        self._has_old_routes = has_old_routes

    def plan(self, tx: Tx, session_id: str) -> Deletion:
        ids: tuple[str, ...] = tuple(self._sessions.lineage(tx, self._sessions.get(tx, session_id).id))
        return Deletion(
            session_ids=ids,
            messages=_count(tx, "messages", ids),
            snapshots=_count(tx, "hermes_compressions", ids),
            queued=_count(tx, "hermes_queue", ids, "AND state <> 'done'"),
            routes=_count(tx, "hermes_routes", ids) + self._count_old_routes(tx, ids),
        )

    def delete(self, tx: Tx, session_id: str) -> Deletion:
        """Delete a conversation with its messages, snapshots, queued work, bindings and search entries."""
        planned = self.plan(tx, session_id)
        for key in planned.session_ids:
            self._unsynced.keep_copies_out(tx, key)
            self._search.forget(tx, key)
            queue_items.drop_session(tx, key)
            forget_place(tx, key)
            # Processes that still use the session cannot write any more, not even into a later one with its id.
            lanes.revoke_lane(tx, SESSIONS, key)
            leases.revoke(tx, compression_lease(key))
            for table in ("hermes_message_extra", "hermes_hidden", "hermes_memory_told"):
                tx.execute(
                    f"DELETE FROM {table} WHERE message_id IN (SELECT id FROM messages WHERE session_id = ?)", (key,)
                )
            for table in (
                "messages",
                "hermes_compressions",
                "hermes_routes",
                "hermes_session_extra",
                "hermes_incognito_sessions",
                "hermes_reviews",
                "hermes_reviews_due",
                "hermes_compression_failures",
                "hermes_inbox_messages",
                "hermes_prompts",
                "hermes_injections",
                "hermes_chosen_models",
                "hermes_usage",
                "hermes_undone",
                "hermes_project_files",
                "hermes_auto_titles",
                "hermes_api_turns",
            ):
                tx.execute(f"DELETE FROM {table} WHERE session_id = ?", (key,))
            for table in _foreign_tables(tx):
                tx.execute(f"DELETE FROM {table} WHERE session_id = ?", (key,))
            if self._has_old_routes:
                tx.execute(f"DELETE FROM gateway_routing WHERE {OLD_ROUTE} = ?", (key,))
            self._detach_children(tx, key)
            tx.execute("DELETE FROM sessions WHERE id = ?", (key,))
        return planned

    def _count_old_routes(self, tx: Tx, ids: tuple[str, ...]) -> int:
        if not self._has_old_routes:
            return 0
        marks = ", ".join("?" * len(ids))
        return int(
            tx.execute(f"SELECT count(*) FROM gateway_routing WHERE {OLD_ROUTE} IN ({marks})", ids).fetchone()[0]
        )

    def _detach_children(self, tx: Tx, session_id: str) -> None:
        """Clear the parent of branches and sub-agent runs, which stay."""
        if "parent_session_id" in self._shape.columns:
            tx.execute("UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id = ?", (session_id,))
        tx.execute(
            "UPDATE hermes_session_extra SET parent_session_id = NULL WHERE parent_session_id = ?",
            (session_id,),
        )


def _foreign_tables(tx: Tx) -> list[str]:
    """Return the tables of other versions that store rows per session (usage, locks, delegations), quoted."""
    rows = tx.execute(
        """
        SELECT '"' || replace(t.name, '"', '""') || '"' AS name FROM sqlite_master t, pragma_table_info(t.name) c
        WHERE t.type = 'table' AND t.sql NOT LIKE 'CREATE VIRTUAL%' AND c.name = 'session_id'
        AND t.name NOT LIKE 'hermes\\_%' ESCAPE '\\' AND t.name <> 'messages'
        """
    )
    return [row["name"] for row in rows]


def _count(tx: Tx, table: str, ids: tuple[str, ...], condition: str = "") -> int:
    marks = ", ".join("?" * len(ids))
    row = tx.execute(f"SELECT count(*) FROM {table} WHERE session_id IN ({marks}) {condition}", ids).fetchone()
    return int(row[0])
