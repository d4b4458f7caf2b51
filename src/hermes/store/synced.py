"""Synced messages: those that a memory provider has received or will receive. Their marks outlive the outbox rows.

Unsynced messages: those that a provider missed while another provider was chosen, or none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from hermes.db.engine import Tx
from hermes.scope import TERMINAL
from hermes.store.copies import SUMMARY, Copies
from hermes.store.hidden import COPIED, WITHHELD, Incognito, hide_rows
from hermes.store.messages import Messages
from hermes.store.schema import TableShape, as_text
from hermes.store.sessions import Sessions
from hermes.types import ECHO, Message, Session

TEMPORARY_SOURCES = ("cron", "subagent", "tool")
"""Sources of temporary sessions in other versions, in which agents work without a person."""
DELEGATED = '"_delegate_from"'
"""The mark of other versions for a sub-agent's run."""
BRANCHED = '"_branched_from"'
"""The mark of other versions for a branch, even if its parent is gone."""


def mark_synced(tx: Tx, provider: str, messages: Iterable[int]) -> set[int]:
    """Mark messages for delivery to a provider and return those that were not marked before."""
    rows = tx.execute(
        "INSERT INTO hermes_memory_told (message_id, provider) SELECT value, ? FROM json_each(?) WHERE true "
        "ON CONFLICT DO NOTHING RETURNING message_id",
        (provider, json.dumps(list(messages))),
    )
    return {row["message_id"] for row in rows}


def unmark_synced(tx: Tx, provider: str, messages: Iterable[int]) -> None:
    """Remove the marks of messages that a provider did not receive after all, so that they can be delivered later."""
    tx.execute(
        "DELETE FROM hermes_memory_told WHERE provider = ? AND message_id IN (SELECT value FROM json_each(?))",
        (provider, json.dumps(list(messages))),
    )


def synced_among(tx: Tx, messages: Iterable[int]) -> list[tuple[str, int]]:
    """Return `(provider, message id)` for each sync mark of these messages."""
    rows = tx.execute(
        "SELECT provider, message_id FROM hermes_memory_told "
        "WHERE message_id IN (SELECT value FROM json_each(?)) ORDER BY provider, message_id",
        (json.dumps(list(messages)),),
    )
    return [(row["provider"], row["message_id"]) for row in rows]


def synced_providers(tx: Tx) -> list[str]:
    """Return the providers that have any sync mark."""
    rows = tx.execute("SELECT DISTINCT provider FROM hermes_memory_told ORDER BY provider")
    return [row["provider"] for row in rows]


def is_any_synced(tx: Tx, provider: str) -> bool:
    """Return True if a provider has any sync mark."""
    row = tx.execute("SELECT 1 FROM hermes_memory_told WHERE provider = ? LIMIT 1", (provider,))
    return row.fetchone() is not None


class UnsyncedMessages:
    """The unsynced messages of one store. Every method runs inside the caller's transaction."""

    def __init__(
        self, sessions: Sessions, messages: Messages, incognito: Incognito, shapes: tuple[TableShape, TableShape]
    ) -> None:
        self._sessions = sessions
        self._messages = messages
        self._incognito = incognito
        self._columns = shapes[0].columns
        self._copies = Copies(shapes[1])

    def sessions(self, tx: Tx, provider: str) -> list[str]:
        """Return the sessions that may have unsynced messages, oldest first."""
        marks = ", ".join("?" * len(TEMPORARY_SOURCES))
        delegated = f"AND instr(coalesce(t.model_config, ''), '{DELEGATED}') = 0" if self._has("model_config") else ""
        rows = tx.execute(
            f"""
            SELECT t.id FROM sessions t WHERE t.source NOT IN ({marks}) {delegated} AND EXISTS (
                SELECT 1 FROM messages m WHERE m.session_id = t.id AND m.role IN ('user', 'assistant')
                AND NOT EXISTS (SELECT 1 FROM hermes_memory_told d WHERE d.message_id = m.id AND d.provider = ?)
                AND NOT EXISTS (SELECT 1 FROM hermes_hidden h WHERE h.hidden_from = 'providers' AND h.message_id = m.id)
            ) ORDER BY t.started_at, t.id
            """,
            (*TEMPORARY_SOURCES, provider),
        )
        return [str(row["id"]) for row in rows]

    def messages(self, tx: Tx, provider: str, session_id: str) -> list[Message]:
        """Return the messages of a session that a turn would have delivered, in order; empty if the session does not
        exist. Incognito messages, and copies and summaries of other versions, are left out."""
        session = self._sessions.look_up(tx, session_id)
        if session is None:
            return []
        said = [message for message in self._messages.history(tx, session_id) if _is_said(message)]
        synced = {
            row["id"]
            for row in tx.execute(
                f"SELECT t.id FROM messages t WHERE t.session_id = ? AND ({WITHHELD} OR EXISTS "
                "(SELECT 1 FROM hermes_memory_told d WHERE d.message_id = t.id AND d.provider = ?))",
                (session_id, provider),
            )
        }
        again = self._from_parent(tx, session)
        known = self._incognito.remembered(tx, said)
        return [message for message in known if message.id not in synced and message.id not in again]

    def keep_copies_out(self, tx: Tx, parent_id: str) -> None:
        """Exclude from delivery what other sessions copied from a session that is to be deleted: their origin is
        unknown afterwards."""
        children = [child for child in self._sessions.children(tx, parent_id) if self._may_be_synced(tx, child)]
        if not children:
            return
        theirs, hidden = self._copies.said(tx, parent_id), self._incognito.ids(tx, parent_id)
        for child in children:
            copies = self._copies.from_parent(tx, child, theirs, hidden)
            hide_rows(tx, copies, COPIED, now=None, hidden_from="providers")

    def _from_parent(self, tx: Tx, session: Session) -> frozenset[int]:
        """Return the ids of messages that a session copied from its parent, even a deleted one."""
        parent = session.parent_session_id
        if parent is not None and self._sessions.exists(tx, parent):
            theirs = self._copies.said(tx, parent)
            return self._copies.from_parent(tx, session, theirs, self._incognito.ids(tx, parent))
        is_branch = parent is not None or self._is_marked(tx, session.id, BRANCHED)
        return self._copies.from_gone_parent(tx, session, is_branch)

    def _may_be_synced(self, tx: Tx, session: Session) -> bool:
        return session.source not in TEMPORARY_SOURCES and not self._is_marked(tx, session.id, DELEGATED)

    def _is_marked(self, tx: Tx, session_id: str, mark: str) -> bool:
        """Return True if another version gave the session this mark."""
        if not self._has("model_config"):
            return False
        marked = f"SELECT 1 FROM sessions WHERE id = ? AND instr(coalesce(model_config, ''), '{mark}') > 0"
        return tx.execute(marked, (session_id,)).fetchone() is not None

    def directory(self, tx: Tx, session_id: str) -> Path | None:
        """Return the directory in which a terminal session began, if the file has it."""
        if not self._has("cwd"):
            return None
        row = tx.execute("SELECT cwd FROM sessions WHERE id = ? AND source = ?", (session_id, TERMINAL)).fetchone()
        kept = None if row is None else as_text(row["cwd"])
        return Path(kept) if kept and "\0" not in kept else None

    def _has(self, column: str) -> bool:
        return column in self._columns


def _is_said(message: Message) -> bool:
    """Return True for a user message, or a reply that ended a turn."""
    text = message.content or ""
    if not text.strip() or SUMMARY.match(text):
        return False
    is_reply = message.role == "assistant" and not message.tool_calls and message.finish_reason not in ("error", ECHO)
    return message.role == "user" or is_reply
