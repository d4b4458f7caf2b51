"""Who runs the gateway of a home: one at a time, known by a lease, asked to stop by a mark."""

from __future__ import annotations

import logging

from hermes.db import leases
from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.errors import StaleError
from hermes.store import inbox as inbox_rows

log = logging.getLogger("hermes.gateway")

LEASE = "gateway"
STOP_PART = "stop"


def stop_requested(tx: Tx) -> bool:
    """Whether someone asked the running gateway to end."""
    return any(part.part == STOP_PART for part in inbox_rows.read_status(tx))


def let_go(tx: Tx, lease: Lease) -> None:
    """Remove the gateway's status and release its lease. If another gateway has the lease by now, leave both."""
    try:
        leases.release(tx, lease)
    except StaleError:
        log.warning("another gateway took over this home before this one had ended")
        return
    inbox_rows.clear_status(tx)


def request_stop(tx: Tx, *, now: float) -> bool:
    """Ask the running gateway to end; False when none runs."""
    if running_gateway(tx, now=now) is None:
        return False
    inbox_rows.set_status(tx, STOP_PART, "requested", "", now=now)
    return True


def running_gateway(tx: Tx, *, now: float) -> str | None:
    """Who runs the gateway of this home, or None."""
    held = leases.holder(tx, LEASE, now=now)
    return None if held is None else held.owner
