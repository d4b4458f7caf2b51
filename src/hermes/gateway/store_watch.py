"""Watches whether the store can be written. A failure is reported once, and so is the recovery; `hermes gateway status`
shows it in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from msgspec import Struct

from hermes.errors import StoreBusyError, StoreError, StoreGoneError
from hermes.files import check_room
from hermes.store.inbox import set_status
from hermes.store.store import Store

log = logging.getLogger("hermes.gateway")

STATUS_PART = "store"
"""The store's name in the gateway's status."""


class StoreWatch(Struct):
    """The state of the store. `on_trouble` is called for the first failure of a row."""

    store: Store
    on_trouble: Callable[[StoreError], None]
    trouble: StoreError | None = None
    """The error while the store cannot be written; None otherwise."""

    def hear(self, error: StoreError) -> None:
        """Record a failure. A lock that another process held for too long is ignored: it passes by itself."""
        if isinstance(error, StoreBusyError):
            log.warning("%s", error.line())
            return
        first, self.trouble = self.trouble is None, error
        if first:
            log.error("the store cannot be written; new messages are refused: %s", error.line())
            self.on_trouble(error)

    def check(self) -> None:
        """Raise the current error, if any, so that a message is refused at once."""
        if self.trouble is not None:
            raise type(self.trouble)(self.trouble.message, hint=self.trouble.hint)

    async def look(self) -> None:
        """Check whether a failure is over. Raises StoreGoneError, which is permanent."""
        if self.trouble is None:
            return
        if isinstance(self.trouble, StoreGoneError):
            raise self.trouble
        try:
            await asyncio.to_thread(check_room, self.store.db.path.parent)
            await self.store.write(lambda tx: set_status(tx, STATUS_PART, "ok", "", now=self.store.clock.now()))
        except OSError:
            return
        except StoreError as error:
            self.trouble = error
            return
        self.trouble = None
        log.warning("the store can be written again")
