"""Ids and names of conversations: session ids, snapshot ids, session keys, and the names under which processes lock a
session (its lane and its compression lease)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

SNAPSHOT = re.compile(r"\A(?P<session>.+)\.snapshot\.(?P<stamp>\d{8}T\d{6}(?:\d{6})?Z)")

SESSIONS = "session"
"""Queue name of session lanes. It differs from the inbox's: the gateway holds an inbox lane while a turn holds the
session's lane, and the two must not collide."""


def new_session_id(now: float, random_hex: Callable[[int], str]) -> str:
    """Return `YYYYMMDD_HHMMSS_<8 hex>`, in UTC. `random_hex(n)` returns 2n hex digits."""
    return f"{datetime.fromtimestamp(now, UTC):%Y%m%d_%H%M%S}_{random_hex(4)}"


def snapshot_id(session_id: str, now: float) -> str:
    """Return `<session id>.snapshot.<UTC time>`, to the microsecond so that no two are equal."""
    return f"{session_id}.snapshot.{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S%fZ}"


def snapshot_session(name: str) -> str | None:
    """Return the session that a snapshot id belongs to, or None if `name` is not a snapshot id."""
    found = SNAPSHOT.fullmatch(name)
    return found["session"] if found else None


def session_key(agent: str, platform: str, chat_type: str, chat_id: str, thread_id: str | None = None) -> str:
    """Return `agent:<agent>:<platform>:<chat type>:<chat id>[:<thread id>]`."""
    parts = ["agent", agent, platform, chat_type, chat_id]
    return ":".join(parts if thread_id is None else [*parts, thread_id])


def compression_lease(session_id: str) -> str:
    """Return the name of the lease that is held while a session is compressed."""
    return f"compression:{session_id}"
