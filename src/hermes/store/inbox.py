"""Gateway state beside its queues: which inbox item became which message, pairings, component status, and the lease and
stop request of the running gateway.

Each row is written in the transaction of the event that it records.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from hermes.db import leases, queue_items
from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.errors import NotFoundError, StaleError
from hermes.store.people import meet

SCHEMA = (
    """
    CREATE TABLE hermes_inbox_messages (
        item_id INTEGER PRIMARY KEY,
        session_id TEXT NOT NULL,
        message_id INTEGER NOT NULL
    )
    """,
    "CREATE INDEX hermes_inbox_messages_session ON hermes_inbox_messages (session_id)",
    """
    CREATE TABLE hermes_pairings (
        platform TEXT NOT NULL,
        user_id TEXT NOT NULL,
        name TEXT NOT NULL,
        code TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL CHECK (state IN ('pending', 'allowed')),
        created_at REAL NOT NULL,
        PRIMARY KEY (platform, user_id)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE hermes_gateway_status (
        part TEXT PRIMARY KEY,
        state TEXT NOT NULL,
        detail TEXT NOT NULL,
        since REAL NOT NULL
    ) WITHOUT ROWID
    """,
)

NOT_ANSWERED = {"failed": "gone", "message": "the message was taken back before it was answered"}
"""Outcome of an inbox item whose message was retracted before its reply."""

MOVED_CHATS = """
CREATE TABLE hermes_moved_chats (
    platform TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    first_chat_id TEXT NOT NULL,
    moved_at REAL NOT NULL,
    PRIMARY KEY (platform, chat_id)
) WITHOUT ROWID
"""
"""Chats to which a platform gave another id, such as a group that became a supergroup: the conversation stays the
same."""

READ_POSITIONS = """
CREATE TABLE hermes_read_positions (
    platform TEXT NOT NULL,
    place TEXT NOT NULL,
    position TEXT NOT NULL,
    PRIMARY KEY (platform, place)
) WITHOUT ROWID
"""
"""Read position per chat, for platforms that do not redeliver: after a start, later messages are fetched."""

PairingState = Literal["pending", "allowed"]


class Pairing(Struct, frozen=True):
    """A person who asked to talk, and whether the owner allowed it."""

    platform: str
    user_id: str
    name: str
    code: str
    state: PairingState
    created_at: float


class PartStatus(Struct, frozen=True):
    """Status of one part of a gateway."""

    part: str
    state: str
    detail: str
    since: float


def record_messages(tx: Tx, session_id: str, pairs: Iterable[tuple[int, int]]) -> None:
    """Record which inbox items are stored as messages, so that a replay after a crash does not store them again."""
    tx.executemany(
        "INSERT INTO hermes_inbox_messages (item_id, session_id, message_id) VALUES (?, ?, ?)",
        [(item_id, session_id, message_id) for item_id, message_id in pairs],
    )


def said_already(tx: Tx, item_ids: Iterable[int]) -> dict[int, int]:
    """Return the message id of each inbox item that is stored as a message."""
    found = {
        item_id: tx.execute("SELECT message_id FROM hermes_inbox_messages WHERE item_id = ?", (item_id,)).fetchone()
        for item_id in item_ids
    }
    return {item_id: int(row["message_id"]) for item_id, row in found.items() if row is not None}


def is_followed(tx: Tx, session_id: str, message_id: int) -> bool:
    """Return True if a later message of the session, in the log already, still waits for its reply."""
    later = tx.execute(
        "SELECT item_id FROM hermes_inbox_messages WHERE session_id = ? AND message_id > ?", (session_id, message_id)
    ).fetchall()
    return any(item.state == "waiting" for row in later if (item := queue_items.get(tx, row["item_id"])) is not None)


def settle_undone(tx: Tx, session_id: str, message_ids: Iterable[int], *, now: float) -> None:
    """Conclude the inbox items of retracted messages that still wait for their reply."""
    rows = tx.execute(
        "SELECT item_id FROM hermes_inbox_messages WHERE session_id = ? "
        "AND message_id IN (SELECT value FROM json_each(?))",
        (session_id, json.dumps(list(message_ids))),
    ).fetchall()
    for item in (queue_items.get(tx, row["item_id"]) for row in rows):
        if item is not None and item.state == "waiting":
            queue_items.conclude(tx, item.queue, item.key, json.dumps(NOT_ANSWERED), now=now)


def record_move(tx: Tx, platform: str, old: str, new: str, *, now: float) -> bool:
    """Record that the id of chat `old` changed to `new`. Return False if that is known already, or leads back to the
    first id."""
    first = first_chat_id(tx, platform, old)
    if first == new:
        return False
    added = tx.execute(
        "INSERT INTO hermes_moved_chats VALUES (?, ?, ?, ?) ON CONFLICT (platform, chat_id) DO NOTHING",
        (platform, new, first, now),
    )
    return added.rowcount > 0


def first_chat_id(tx: Tx, platform: str, chat_id: str) -> str:
    """Return the first id of a chat, which names its conversation for life."""
    row = tx.execute(
        "SELECT first_chat_id FROM hermes_moved_chats WHERE platform = ? AND chat_id = ?", (platform, chat_id)
    ).fetchone()
    return chat_id if row is None else str(row["first_chat_id"])


def read_positions(tx: Tx, platform: str) -> dict[str, str]:
    """Return the id of the last received message by place."""
    rows = tx.execute("SELECT place, position FROM hermes_read_positions WHERE platform = ?", (platform,))
    return {row["place"]: row["position"] for row in rows}


def write_positions(tx: Tx, platform: str, positions: Mapping[str, str | None]) -> None:
    """Store the read positions of places; None deletes one."""
    for place, position in positions.items():
        tx.execute("DELETE FROM hermes_read_positions WHERE platform = ? AND place = ?", (platform, place))
        if position is not None:
            tx.execute("INSERT INTO hermes_read_positions VALUES (?, ?, ?)", (platform, place, position))


def find_pairing(tx: Tx, platform: str, user_id: str) -> Pairing | None:
    """Return the pairing of a person, or None for a stranger."""
    row = tx.execute("SELECT * FROM hermes_pairings WHERE platform = ? AND user_id = ?", (platform, user_id)).fetchone()
    return None if row is None else Pairing(**dict(row))


def pairings(tx: Tx) -> list[Pairing]:
    """Return all pairings, newest first."""
    return [Pairing(**dict(row)) for row in tx.execute("SELECT * FROM hermes_pairings ORDER BY created_at DESC")]


def ask_pairing(tx: Tx, platform: str, user_id: str, name: str, code: str, *, now: float) -> None:
    """Store a pairing request; the owner confirms it with the code."""
    tx.execute("INSERT INTO hermes_pairings VALUES (?, ?, ?, ?, 'pending', ?)", (platform, user_id, name, code, now))


def find_code(tx: Tx, code: str) -> Pairing:
    """Return the pairing with this code. Raises NotFoundError."""
    row = tx.execute("SELECT * FROM hermes_pairings WHERE code = ?", (code.strip().upper(),)).fetchone()
    if row is None:
        raise NotFoundError(f"nobody has the pairing code '{code}'", hint="`hermes gateway pair` lists who asked")
    return Pairing(**dict(row))


def allow_pairing(tx: Tx, code: str) -> None:
    """Allow the person with this code to talk."""
    found = find_code(tx, code)
    tx.execute("UPDATE hermes_pairings SET state = 'allowed' WHERE code = ?", (found.code,))
    meet(tx, found.platform, found.user_id, found.name)


def remove_pairing(tx: Tx, platform: str, user_id: str) -> bool:
    """Delete a pairing; return True if it existed."""
    return bool(
        tx.execute("DELETE FROM hermes_pairings WHERE platform = ? AND user_id = ?", (platform, user_id)).rowcount
    )


def set_status(tx: Tx, part: str, state: str, detail: str, *, now: float) -> None:
    """Store the status of a part. `since` changes only with the state."""
    tx.execute(
        "INSERT INTO hermes_gateway_status VALUES (:part, :state, :detail, :now) ON CONFLICT (part) DO UPDATE SET "
        "since = CASE WHEN state = :state THEN since ELSE :now END, state = :state, detail = :detail",
        {"part": part, "state": state, "detail": detail, "now": now},
    )


def read_status(tx: Tx) -> list[PartStatus]:
    """Return the last status of every part."""
    return [PartStatus(**dict(row)) for row in tx.execute("SELECT * FROM hermes_gateway_status ORDER BY part")]


def clear_status(tx: Tx) -> None:
    """Delete all status rows, when a gateway starts or ends."""
    tx.execute("DELETE FROM hermes_gateway_status")


log = logging.getLogger("hermes.gateway")
LEASE = "gateway"
STOP_PART = "stop"


def stop_requested(tx: Tx) -> bool:
    """Return True if the running gateway was asked to end."""
    return any(part.part == STOP_PART for part in read_status(tx))


def let_go(tx: Tx, lease: Lease) -> None:
    """Remove the gateway's status and release its lease. If another gateway has the lease by now, leave both."""
    try:
        leases.release(tx, lease)
    except StaleError:
        log.warning("another gateway took over this home before this one had ended")
        return
    clear_status(tx)


def request_stop(tx: Tx, *, now: float) -> bool:
    """Ask the running gateway to end; return False if none runs."""
    if running_gateway(tx, now=now) is None:
        return False
    set_status(tx, STOP_PART, "requested", "", now=now)
    return True


def running_gateway(tx: Tx, *, now: float) -> str | None:
    """Return the owner of the running gateway's lease, or None."""
    held = leases.holder(tx, LEASE, now=now)
    return None if held is None else held.owner
