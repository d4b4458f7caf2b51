"""Outlines that are read in the background, so that no search waits for a long history."""

from __future__ import annotations

import asyncio
import logging

from hermes.errors import StoreError
from hermes.memory_server.db.database import Database
from hermes.memory_server.engine.outlines import Outlines

logger = logging.getLogger(__name__)


class Loading:
    """One task for each workspace whose outline is wanted."""

    def __init__(self, database: Database, outlines: Outlines) -> None:
        self._database = database
        self._outlines = outlines
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        outlines.load_later = self.begin

    def begin(self, workspace_id: int) -> None:
        """Load an outline soon. May be called from any thread."""
        self._loop.call_soon_threadsafe(self._begin, workspace_id)

    async def close(self) -> None:
        """Stop what is under way: the next start begins again."""
        self._outlines.load_later = None
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin(self, workspace_id: int) -> None:
        if workspace_id not in self._tasks:
            self._tasks[workspace_id] = asyncio.create_task(self._load(workspace_id))

    async def _load(self, workspace_id: int) -> None:
        try:
            await self._database.read(lambda tx: self._outlines.load(tx, workspace_id))
        except StoreError as error:
            # The next search asks for it again, and what was read so far is kept.
            logger.warning("The outline of workspace %d is not loaded yet: %s", workspace_id, error)
        finally:
            del self._tasks[workspace_id]
