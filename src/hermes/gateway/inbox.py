"""The durable inbox: a message is committed before it is acknowledged to its platform, and a message that arrives twice
has one effect."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from hermes.db import queue, queue_items
from hermes.db.engine import Tx
from hermes.db.lanes import join_lanes
from hermes.db.queue import Item
from hermes.events import Replied
from hermes.gateway.access import Access, Verdict
from hermes.gateway.inbox_record import Batch, done_with, is_stop
from hermes.gateway.outbound import enqueue_text
from hermes.gateway.platform import Chat, Inbound, Moved
from hermes.scope import API, Scope
from hermes.slash.acts import NOT_RUNNING, STOPPED
from hermes.store.chats import Chats
from hermes.store.inbox import record_move, said_already, set_status
from hermes.store.store import Store
from hermes.types import Session

log = logging.getLogger("hermes.gateway")


class Received(Struct, frozen=True):
    """The result of receiving a message: a new inbox item, or one that exists already.

    `session_id` is the message's session, None if the author may not talk. `stopped` is, for `/stop`, whether it ended
    a turn. `other` is True if the message id belongs to an earlier message with another text; this one is refused.
    """

    key: str
    item_key: str
    session_id: str | None
    fresh: bool
    verdict: Verdict
    stopped: bool | None = None
    other: bool = False


class OpenedSession(Struct, frozen=True):
    """The session in which a batch is answered."""

    session: Session
    scope: Scope
    owners: tuple[bool, ...]
    """Whether the owner wrote it, per message."""
    known: Mapping[int, int]
    """Item id -> message id, for items that were stored as messages before a crash."""


class Inbox(Struct, frozen=True):
    """Accepts messages. `stop` ends the running turn of a session; `wake` wakes the lanes."""

    store: Store
    chats: Chats
    access: Access
    stop: Callable[[str], bool]
    wake: asyncio.Event

    async def receive(self, message: Inbound) -> Received:
        """Commit a message. After the return it cannot be lost, and receiving it again has no effect. Raises UsageError
        for a session id that is not allowed. Replaces NUL by U+FFFD, because not every memory provider can store
        NUL."""
        message = replace(message, text=message.text.replace("\0", "\ufffd"))
        received = await self.store.write(lambda tx: self._commit(tx, message))
        if received.fresh and is_stop(message.typed):
            received = replace(received, stopped=self.stop(received.session_id or ""))
            await self.store.write(lambda tx: self._record_stop_answer(tx, message, received))
        if received.fresh:
            self.wake.set()
        return received

    async def move(self, moved: Moved) -> None:
        """Record that a chat has another id and continue its conversation there. Committed on return; idempotent."""
        if await self.store.write(lambda tx: self._move(tx, moved.old, moved.new)):
            log.info("%s: chat %s is %s now", moved.old.platform, moved.old.chat_id, moved.new.chat_id)
            self.wake.set()  # items of the new id's lane have joined the other lane

    async def report(self, part: str, state: str, detail: str) -> None:
        log.log(logging.INFO if state in ("ok", "starting") else logging.WARNING, "%s: %s %s", part, state, detail)
        await self.store.write(lambda tx: set_status(tx, part, state, detail, now=self.store.clock.now()))

    def _commit(self, tx: Tx, message: Inbound) -> Received:
        now = self.store.clock.now()
        key, item_key = self.chats.key_of(tx, message), item_key_of(message)
        verdict = self.access.judge(tx, message, now=now)
        if verdict.kind == "refused":
            enqueue_text(tx, message.chat, key, f"refusal:{item_key}", verdict.refusal, now=now)
        if verdict.kind == "welcome" and not self.chats.may_name(tx, key, message):
            verdict = Verdict("refused")
        if verdict.kind != "welcome":
            return Received(key, item_key, None, False, verdict)
        if (known := _find_item(tx, self.chats, message)) is not None:
            other = known.payload is not None and known.payload["text"] != message.text
            return Received(key, known.key, known.session_id, False, verdict, other=other)
        session = self.chats.open_session(tx, key, message, now=now)
        lane = self.chats.lane_of(session)
        queue.enqueue(tx, INBOX, lane, item_key, message.to_json(), now=now, session_id=session.id)
        return Received(key, item_key, session.id, True, verdict)

    def _record_stop_answer(self, tx: Tx, message: Inbound, received: Received) -> None:
        """Record the answer to `/stop`, so that a repeated one gets the same, and enqueue it for a chat. Over HTTP the
        open request returns it."""
        now, text = self.store.clock.now(), STOPPED if received.stopped else NOT_RUNNING
        note = done_with(Replied(received.session_id or "", 0, text)).note
        queue_items.conclude(tx, INBOX, received.item_key, note or "", now=now)
        if message.chat.chat_type != API:
            enqueue_text(tx, message.chat, received.key, f"stop:{received.item_key}", text, now=now)

    def _move(self, tx: Tx, old: Chat, new: Chat) -> bool:
        """Record that a chat has a new id; return False if that is known. If people already spoke under the new id,
        that session ends and the older conversation continues."""
        now, routes = self.store.clock.now(), self.store.routes
        before, after = self.chats.key_of_chat(tx, old), self.chats.key_of_chat(tx, new)
        if not record_move(tx, old.platform, old.chat_id, new.chat_id, now=now):
            return False
        kept, early = routes.lookup(tx, before), routes.lookup(tx, after)
        if kept is None and early is not None:
            routes.bind(tx, before, early, now=now)
        elif kept is not None and early is not None:
            self.store.sessions.end(tx, early, "chat_moved", now=now)
            routes.bind(tx, after, kept, now=now)
            lanes = [self.chats.lane_of(self.store.sessions.get(tx, one)) for one in (early, kept)]
            join_lanes(tx, INBOX, *lanes)
        return True

    async def open_batch(self, batch: Batch) -> OpenedSession:
        """Return the session of a batch at this moment, with the key that the message came by, which memory uses."""

        def open_batch(tx: Tx) -> OpenedSession:
            session, scope, owners = self.chats.enter(tx, batch.messages, now=self.store.clock.now())
            queue_items.assign(tx, batch.items, session.id)
            return OpenedSession(session, scope, owners, said_already(tx, [item.id for item in batch.items]))

        return await self.store.write(open_batch)


INBOX = "inbox"
"""The queue of received messages, with one lane per conversation."""


def item_key_of(message: Inbound) -> str:
    """Return the inbox key of a message: the platform's message id, and how the message names its conversation."""
    if message.session_id is not None:
        return _in_session(message, message.session_id)
    if message.session_key is not None:
        return _under_key(message, message.session_key)
    chat = message.chat
    return _join(chat.platform, chat.chat_type, chat.chat_id, message.message_id)


def _find_item(tx: Tx, chats: Chats, message: Inbound) -> Item | None:
    """Return the inbox item of a message that arrived before, even if it named the same session in another way."""
    found = queue_items.find(tx, INBOX, item_key_of(message))
    if found is not None or (message.session_id is None and message.session_key is None):
        return found
    lineage, keys = chats.names_of(tx, message)
    for session_id in lineage:
        if (item := queue_items.find(tx, INBOX, _in_session(message, session_id))) is not None:
            return item
    for key in keys:
        item = queue_items.find(tx, INBOX, _under_key(message, key))
        if item is not None and item.session_id in lineage:  # a key may have meant another session then
            return item
    return None


def _in_session(message: Inbound, session_id: str) -> str:
    return _join(message.chat.platform, "session", session_id, message.message_id)


def _under_key(message: Inbound, key: str) -> str:
    return _join(message.chat.platform, "key", key, message.message_id)


def _join(*parts: str) -> str:
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
