"""Ids and names of conversations: how ours are made, how a snapshot is told from a session, and under which names
processes hold a session while they work on it: its lane and its compression."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

SNAPSHOT = re.compile(r"\A(?P<session>.+)\.snapshot\.(?P<stamp>\d{8}T\d{6}(?:\d{6})?Z)")

SESSIONS = "session"
"""The queue name under which sessions have their lanes. It differs from the inbox's: the gateway holds a lane of the
inbox while a turn holds the session's, and the two must not have the same name."""


def new_session_id(now: float, random_hex: Callable[[int], str]) -> str:
    """`YYYYMMDD_HHMMSS_<8 hex>`, in UTC. `random_hex(n)` gives 2n hex digits."""
    return f"{datetime.fromtimestamp(now, UTC):%Y%m%d_%H%M%S}_{random_hex(4)}"


def snapshot_id(session_id: str, now: float) -> str:
    """`<session id>.snapshot.<UTC time>`, to the microsecond so that two never meet."""
    return f"{session_id}.snapshot.{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S%fZ}"


def snapshot_session(name: str) -> str | None:
    """The session that a snapshot's id belongs to, or None when `name` is no snapshot's id."""
    found = SNAPSHOT.fullmatch(name)
    return found["session"] if found else None


def session_key(agent: str, platform: str, chat_type: str, chat_id: str, thread_id: str | None = None) -> str:
    """`agent:<agent>:<platform>:<chat type>:<chat id>[:<thread id>]`."""
    parts = ["agent", agent, platform, chat_type, chat_id]
    return ":".join(parts if thread_id is None else [*parts, thread_id])


def compression_lease(session_id: str) -> str:
    """The lease that whoever compresses a session holds."""
    return f"compression:{session_id}"
