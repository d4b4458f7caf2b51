"""The lifetime of a server. One that a program started ends when it is unused for a while; every server ends when its
database is removed or replaced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hermes.errors import StoreError, StoreGoneError
from hermes.memory_server.api.metrics import Traffic, VisitListener
from hermes.memory_server.api.server import Server
from hermes.memory_server.engine.health import has_work_soon

log = logging.getLogger(__name__)
QUEUE_POLL_SECONDS = 5.0
"""Interval of checks while the queue is not empty, or the file cannot be read."""

FILE_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Life:
    """Settings of the lifetime. `end` stops the server gracefully, and enables `/stop`. `idle` returns after how many
    seconds without use the server ends, 0 for never; it is called once and may block. `lost` must end the server after
    its database is gone."""

    end: Callable[[], None] | None = None
    idle: Callable[[], float] | None = None
    listeners: Sequence[VisitListener] = ()
    lost: Callable[[], None] | None = None


async def end_when_unused(life: Life, traffic: Traffic, server: Server) -> None:
    """End the server once it is unused for the idle time and no job is due soon."""
    if life.end is None or life.idle is None:
        return
    idle = await asyncio.to_thread(life.idle)
    if not idle:
        return
    while True:
        left = idle - traffic.unused_for()
        await asyncio.sleep(left if left > 0 else QUEUE_POLL_SECONDS)
        if traffic.unused_for() >= idle and await _is_drained(server) and traffic.unused_for() >= idle:
            log.info("memory server: unused for %g s and nothing is due: shutting down", idle)
            life.end()
            return


async def end_when_lost(life: Life, server: Server) -> None:
    """Poll the database file, and end the server when it is removed or replaced."""
    while life.lost is not None:
        await asyncio.sleep(FILE_POLL_SECONDS)
        if server.database.is_replaced():
            server.health.note(StoreGoneError("the memory folder was removed or replaced"))
            log.error("memory server: its files were removed or replaced: shutting down")
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
