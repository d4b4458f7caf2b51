"""How long a server runs. One that was started by itself ends by itself, when nobody has used it for a while; any
ends when its database is removed or replaced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hermes.errors import StoreError, StoreGoneError
from hermes.memory_server.api.server import Server
from hermes.memory_server.api.traffic import Traffic, VisitListener
from hermes.memory_server.engine.health import has_work_soon

log = logging.getLogger(__name__)
QUEUE_POLL_SECONDS = 5.0
"""Seconds between two looks at a queue that is not empty yet, or at a file that cannot be read."""

FILE_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Life:
    """`end` lets the server finish what it does and end; with it, `/stop` may be asked. `idle` says after how many
    seconds without use it is called by itself, 0 for never; it may take a moment and is asked once. `lost` is called
    when the database is no longer in its place, and has to end the server."""

    end: Callable[[], None] | None = None
    idle: Callable[[], float] | None = None
    listeners: Sequence[VisitListener] = ()
    lost: Callable[[], None] | None = None


async def end_when_unused(life: Life, traffic: Traffic, server: Server) -> None:
    """Wait until nobody has used the server for a while and nothing in its queue is due soon, then end it."""
    if life.end is None or life.idle is None:
        return
    idle = await asyncio.to_thread(life.idle)
    if not idle:
        return
    while True:
        left = idle - traffic.unused_for()
        await asyncio.sleep(left if left > 0 else QUEUE_POLL_SECONDS)
        if traffic.unused_for() >= idle and await _is_drained(server) and traffic.unused_for() >= idle:
            log.info("memory server: unused for %g s and nothing is due: it ends", idle)
            life.end()
            return


async def end_when_lost(life: Life, server: Server) -> None:
    """Look regularly whether the database is in its place, and end the server when it is not."""
    while life.lost is not None:
        await asyncio.sleep(FILE_POLL_SECONDS)
        if server.database.is_replaced():
            server.health.note(StoreGoneError("the memory folder was removed or replaced"))
            log.error("memory server: its files were removed or replaced: it ends")
            life.lost()
            return


async def _is_drained(server: Server) -> bool:
    if server.refinement is not None and server.refinement.is_busy:
        return False
    try:
        return not await server.read(lambda tx: has_work_soon(tx, server.now()))
    except StoreError as error:
        log.warning("memory server: %s", error.line())
        return False
