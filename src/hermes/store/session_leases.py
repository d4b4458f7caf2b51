"""What processes hold of a session while they work on it, each as a lease: its lane and its compression."""

from __future__ import annotations

from hermes.db import lanes, leases
from hermes.db.engine import Tx

SESSIONS = "session"
"""Whose lanes are sessions. The gateway holds a lane of its inbox around this one: no name of theirs may meet."""


def compression_lease(session_id: str) -> str:
    """The name of the lease that whoever compresses a session holds."""
    return f"compression:{session_id}"


def revoke_session_leases(tx: Tx, session_id: str) -> None:
    """Whoever works on a session has lost it: they write nothing more, also not into a new one of the same id."""
    lanes.revoke_lane(tx, SESSIONS, session_id)
    leases.revoke(tx, compression_lease(session_id))
