"""The outbound queue: a reply is recorded before it is sent, and sent in order, once where the platform can tell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.outcomes import Dead, Done, Outcome, Retry
from hermes.db.queue import Claim, Item, backoff
from hermes.errors import StaleError, StoreError
from hermes.gateway.chunks import split_text
from hermes.gateway.platform import Chat, MessageGone, Platform, SendLater, SendNever
from hermes.store.store import Store

log = logging.getLogger("hermes.gateway")

OUTBOUND = "outbound"
TTL = 60.0
POLL = 1.0
BATCH = 1
"""Each message is recorded as sent before the next one goes: a crash repeats at most the one that was under way."""
DEFECTS = 5
"""Attempts that a defect of a platform may spoil before a message is put aside."""


def enqueue_text(
    tx: Tx,
    chat: Chat,
    lane: str,
    key: str,
    text: str,
    *,
    now: float,
    longest: int = 4000,
    edit_id: str | None = None,
    session_id: str | None = None,
) -> None:
    """Queue a text for a chat, in pieces; the first one replaces the message `edit_id` where there is one."""
    for number, piece in enumerate(split_text(text, longest)):
        payload = {
            "chat": [chat.platform, chat.chat_type, chat.chat_id, chat.thread_id],
            "text": piece,
            "edit_id": edit_id if number == 0 else None,
        }
        queue.enqueue(tx, OUTBOUND, lane, f"{key}:{number}", payload, now=now, session_id=session_id)


class Delivery:
    """Sends what is queued. One chat waits for nobody but itself."""

    def __init__(
        self,
        store: Store,
        platforms: Mapping[str, Platform],
        locks: Callable[[Chat], asyncio.Lock],
        *,
        owner: str,
        chance: Callable[[], float],
        wake: asyncio.Event,
    ) -> None:
        self._store = store
        self._platforms = platforms
        self._locks = locks
        self._owner = owner
        self._chance = chance
        self._wake = wake
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            self._wake.clear()
            try:
                while await self.deliver_next():
                    pass
            except StoreError as error:
                log.error("the outbound queue cannot be read: %s", error.line())
            try:
                async with asyncio.timeout(POLL):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def deliver_next(self) -> bool:
        """Begin to deliver one lane that is due; False when there is none."""

        def take(tx: Tx) -> Claim | None:
            return queue.claim(tx, OUTBOUND, self._owner, ttl=TTL, now=self._store.clock.now(), limit=BATCH)

        claimed = await self._store.write(take)
        if claimed is None:
            return False
        task = asyncio.create_task(self._deliver(claimed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def drain(self, seconds: float) -> None:
        """Let what is being sent come to an end."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _deliver(self, claimed: Claim) -> None:
        outcomes: list[Outcome] = []
        heart = asyncio.create_task(self._keep(claimed))
        try:
            for item in claimed.items:
                outcomes.append(await self._send(item))
                if isinstance(outcomes[-1], Retry):
                    break
        finally:
            heart.cancel()
            await asyncio.shield(self._settle(claimed, outcomes))
            self._wake.set()  # the next message of the chat is due

    async def _settle(self, claimed: Claim, outcomes: list[Outcome]) -> None:
        try:
            await self._store.write(lambda tx: queue.settle(tx, claimed, outcomes, now=self._store.clock.now()))
        except StaleError:
            log.warning("a delivery to %s took so long that another process took over", claimed.lane)
        except StoreError as error:  # what was sent may be sent again when the lease has run out
            log.error("a delivery to %s could not be recorded: %s", claimed.lane, error.line())

    async def _keep(self, claimed: Claim) -> None:
        """A slow platform must not lose the lane, or its messages would be sent twice."""
        while True:
            await self._store.clock.sleep(TTL / 3)
            with suppress(StaleError, StoreError):  # found out when it is settled
                await self._store.write(lambda tx: queue.heartbeat(tx, claimed, ttl=TTL, now=self._store.clock.now()))

    async def _send(self, item: Item) -> Outcome:
        chat = Chat(*item.payload["chat"])
        platform = self._platforms.get(chat.platform)
        if platform is None:
            return Retry(self._store.clock.now() + 60.0, f"platform {chat.platform} is not running")
        try:
            async with self._locks(chat):
                await _put(platform, chat, item)
            return Done()
        except SendLater as error:
            wait = error.wait if error.wait is not None else backoff(item.attempts, self._chance, base=1.0, cap=60.0)
            return Retry(self._store.clock.now() + wait, str(error))
        except SendNever as error:
            log.warning("a message to %s was given up: %s", item.lane, error)
            return Dead(str(error))
        except Exception as error:  # a platform's defect must not end the delivery to others
            log.exception("a message to %s could not be sent", item.lane)
            reason = f"{type(error).__name__}: {error}"
            if item.attempts >= DEFECTS:
                return Dead(reason)
            return Retry(self._store.clock.now() + backoff(item.attempts, self._chance, base=1.0, cap=60.0), reason)


async def _put(platform: Platform, chat: Chat, item: Item) -> None:
    """Replace the preview, where there is one and it is still there; else send."""
    try:
        if item.payload["edit_id"]:
            await platform.edit(chat, item.payload["edit_id"], item.payload["text"])
            return
    except MessageGone:
        log.info("the preview in %s is gone; the reply is sent anew", item.lane)
    await platform.send(chat, item.payload["text"])
