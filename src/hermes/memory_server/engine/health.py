"""Whether the server can do its work, as far as is known. What fails is remembered until it works again."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from sqlalchemy import select

from hermes.clock import Clock
from hermes.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreGoneError,
    StoreReadOnlyError,
    StoreStoppedError,
)
from hermes.memory_server import times
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.dialects import find_damage
from hermes.memory_server.db.statements import upsert
from hermes.memory_server.db.tables import meta, metadata
from hermes.memory_server.engine.backlog import Backlog, read_backlog
from hermes.memory_server.engine.embedding import Refinement
from hermes.memory_server.engine.finer import count_behind, count_refused

log = logging.getLogger(__name__)
OK = "ok"
LASTS = 1.0
"""Seconds that a result is used before the file is looked at again."""
ROOM = 8 * 1024 * 1024
"""Bytes on the disk below which it counts as full: who writes also writes the log."""
WRITE_EVERY = 10.0
"""When no write is known to have worked for so many seconds, a look makes one itself."""
NAMES: dict[type[StoreError], str] = {
    StoreBusyError: "locked",
    StoreDamagedError: "damaged",
    StoreFullError: "full",
    StoreGoneError: "gone",
    StoreReadOnlyError: "read-only",
}
LASTING = ("damaged", "gone")
"""Troubles that a later success does not disprove: that one page can be read says nothing of the others."""


class ServerHealth:
    """The state of one open database."""

    def __init__(self, database: Database, clock: Clock, refinement: Refinement | None = None) -> None:
        self.refinement = refinement
        """What makes finer vectors."""
        self.without_finer: int | None = None
        """How many messages wait for a finer vector, up to 10,000; None while that is not known."""
        self.refused_by_finer: int | None = None
        """How many messages get none because they were refused again and again."""
        self._database = database
        self._clock = clock
        self._status = OK
        self._looked = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._wrote = float("-inf")
        self.backlog = Backlog()
        self.free_bytes = 0

    def note(self, error: StoreError) -> None:
        """Remember that the file refused something."""
        self._become(NAMES.get(type(error), self._status))

    def wrote(self) -> None:
        """Remember that a write worked."""
        self._wrote = self._clock.now()

    async def status(self) -> str:
        """`ok`, or what is wrong with the file: one of `NAMES`. Only the first who asks waits for a look."""
        first = self._looked == float("-inf")
        if abs(self._clock.now() - self._looked) >= LASTS and (self._looking is None or self._looking.done()):
            self._looked = self._clock.now()
            self._looking = asyncio.create_task(self._look())
        if first and self._looking is not None:
            await asyncio.shield(self._looking)
        return self._status

    async def inspect(self) -> None:
        """Look at every page of the file, as far as there is time. Nobody waits for it."""
        try:
            damage = await self._database.read(find_damage)
        except StoreStoppedError:
            return
        except StoreError as error:
            self.note(error)
            return
        if damage is not None:
            log.error("memory server: the file is damaged: %s", damage)
            self._become(NAMES[StoreDamagedError])

    def _is_to_be_tried(self) -> bool:
        """Whether a trial write would tell something new. A damaged file is never written for that."""
        unknown = self._status != OK or abs(self._clock.now() - self._wrote) >= WRITE_EVERY
        return unknown and self._status not in LASTING

    def _become(self, status: str) -> None:
        if self._status not in LASTING:
            self._status = status

    async def close(self) -> None:
        """Wait for a look that is under way: the database is closed after this."""
        if self._looking is not None:
            await self._looking

    async def _look(self) -> None:
        """A look at each table, at what waits and at the disk; after a trouble, or when nobody else does, a write."""
        try:
            self.free_bytes = self._database.free_bytes()
            self.backlog = await self._database.read(partial(_look_around, at=times.now(self._clock)))
            if self.refinement is not None and (space := self.refinement.space) is not None:
                counts = await self._database.read(lambda tx: (count_behind(tx, space), count_refused(tx)))
                self.without_finer, self.refused_by_finer = counts
            if self.free_bytes < ROOM:
                self._become(NAMES[StoreFullError])
            elif self._is_to_be_tried():
                await self._database.write(_write)
                self.wrote()
                self._become(OK)
        except StoreError as error:
            self.note(error)
        except OSError as error:  # the folder is not there any more
            log.error("memory server: %s", error)
            self._become(NAMES[StoreGoneError])


def _look_around(tx: Tx, at: int) -> Backlog:
    """Read where each table begins, and what is behind."""
    for table in metadata.sorted_tables:
        tx.execute(select(*table.primary_key).limit(1)).first()
    return read_backlog(tx, at)


def _write(tx: Tx) -> None:
    upsert(tx, meta, ("name",), {"name": "health", "value": OK})
