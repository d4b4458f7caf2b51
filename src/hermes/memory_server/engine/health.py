"""Whether the file can be read and written, as far as is known. What fails is remembered until it works again."""

from __future__ import annotations

import asyncio
import logging

from sqlalchemy import select

from hermes.clock import Clock
from hermes.errors import StoreDamagedError, StoreError, StoreFullError, StoreReadOnlyError, StoreStoppedError
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.integrity import find_damage
from hermes.memory_server.db.statements import upserting
from hermes.memory_server.db.tables import meta, metadata

log = logging.getLogger(__name__)
OK = "ok"
LASTS = 1.0
"""Seconds after which one looks again; who asks meanwhile is told what was seen."""
NAMES: dict[type[StoreError], str] = {
    StoreDamagedError: "damaged",
    StoreFullError: "full",
    StoreReadOnlyError: "read-only",
}
"""The troubles that do not pass by themselves."""


class Health:
    """The state of one open database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._status = OK
        self._looked = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    def note(self, error: StoreError) -> None:
        """Something was refused by the file."""
        self._status = NAMES.get(type(error), self._status)

    async def status(self) -> str:
        """`ok`, or what is wrong: `damaged`, `full`, `read-only`. Only the first who asks waits for a look."""
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
            self._status = NAMES[StoreDamagedError]

    async def close(self) -> None:
        """Wait for a look that is under way: the database is closed after this."""
        if self._looking is not None:
            await self._looking

    async def _look(self) -> None:
        """A look at each table, and at the disk; after a trouble a write, which clears it."""
        try:
            await self._database.read(_touch)
            if not self._database.has_room():
                self._status = NAMES[StoreFullError]
            elif self._status not in (OK, NAMES[StoreDamagedError]):  # a part that can be read says nothing of the rest
                await self._database.write(_write)
                self._status = OK
        except StoreError as error:
            self.note(error)


def _touch(tx: Tx) -> None:
    """Read where each table begins."""
    for table in metadata.sorted_tables:
        tx.execute(select(*table.primary_key).limit(1)).first()


def _write(tx: Tx) -> None:
    tx.execute(upserting(meta, ("name",), {"name": "health", "value": OK}))
