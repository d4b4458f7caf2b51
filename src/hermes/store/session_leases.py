"""What processes hold of a session while they work on it, each as a lease: its lane and its compression."""

from __future__ import annotations

from hermes.db import lanes, leases
from hermes.db.engine import Tx

SESSIONS = "session"
"""The queue name under which sessions have their lanes. It differs from the inbox's: the gateway holds a lane of the
inbox while a turn holds the session's, and the two must not have the same name."""


def compression_lease(session_id: str) -> str:
    """The name of the lease that whoever compresses a session holds."""
    return f"compression:{session_id}"


def revoke_session_leases(tx: Tx, session_id: str) -> None:
    """End every lease on a session: whoever still works on it can write nothing more, not even into a later session of
    the same id."""
    lanes.revoke_lane(tx, SESSIONS, session_id)
    leases.revoke(tx, compression_lease(session_id))
