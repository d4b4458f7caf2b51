"""Notices that follow a reply in one line: warnings of the turn, and that a note changed.

owner, alone   all notices with outages; the owner's notes
guest, alone   notices other than outages; the guest's notes
group          nothing
over HTTP      nothing: the response has a field for notices

Notes of a review are announced with the person's next reply, on any platform.

Watches whether the store can be written. A failure is reported once, and so is the recovery; `hermes gateway status`
shows it in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from hermes.db.engine import Tx
from hermes.errors import StoreBusyError, StoreError, StoreGoneError
from hermes.events import Failed, MemoryUpdated, Notice, TurnEvent
from hermes.files import check_room
from hermes.gateway.platform import Chat
from hermes.scope import OWNER, Group, Scope
from hermes.store.inbox import set_status
from hermes.store.reviews import take_remarks
from hermes.store.store import Store

MEMORY_UPDATED = "💾 Memory updated"
MAX_NOTICE_LINE_CHARS = 1000


class NoticeOptions(Struct, frozen=True):
    """Which notices are sent."""

    notices: bool = True
    notes: bool = True


class TurnNotices(Struct, frozen=True):
    """The notices of one turn."""

    options: NoticeOptions
    chat: Chat
    scope: Scope
    _heard: dict[str, None] = field(default_factory=dict)

    def hear(self, event: TurnEvent) -> None:
        """Collect the notice of an event, if this chat may read it."""
        if not self._are_shown:
            return
        match event:
            case Notice(text, is_outage) if self.scope == OWNER or not is_outage:
                self._heard[" ".join(text.split())] = None
            case MemoryUpdated() if self.options.notes:
                self._heard[MEMORY_UPDATED] = None
            case _:
                pass

    @property
    def line(self) -> str:
        """All notices in one line; "" without notices."""
        return _one_line(self._heard)

    def line_of_reply(self, tx: Tx) -> str:
        """Return `line` together with unannounced notes of reviews. Marks them as announced in the transaction that
        records the reply, so that each is announced once."""
        if not self._are_shown or not self.options.notes or not take_remarks(tx, self.scope):
            return self.line
        return _one_line({MEMORY_UPDATED: None, **self._heard})

    @property
    def _are_shown(self) -> bool:
        return self.options.notices and self.chat.chat_type == "dm" and not isinstance(self.scope, Group)


def _one_line(heard: Iterable[str]) -> str:
    return " · ".join(heard)[:MAX_NOTICE_LINE_CHARS]


def may_hear(event: TurnEvent, scope: Scope) -> bool:
    """Return True if the people in a conversation of this scope may see an event."""
    return scope == OWNER or not (isinstance(event, Notice) and event.is_outage)


def apology(failed: Failed, scope: Scope) -> str:
    """Return the reply for a failed turn. Only the owner gets the reason, because a model's error may name addresses,
    files and accounts; the log has it."""
    tells = scope == OWNER or failed.kind == "gone"
    end = "" if failed.message.endswith((".", "?", "!")) else "."
    return f"I could not answer: {failed.message}{end}" if tells else "I could not answer."


log = logging.getLogger("hermes.gateway")

UNWRITABLE = "the store cannot be written; new messages are refused"
WRITABLE_AGAIN = "the store can be written again"
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
            log.error("%s: %s", UNWRITABLE, error.line())
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
        log.warning(WRITABLE_AGAIN)
