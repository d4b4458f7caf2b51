"""The durable inbox: a message is committed before its platform hears that it arrived."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from hermes.agent.lane import INBOX
from hermes.db import queue
from hermes.db.engine import Tx
from hermes.gateway.access import Access, Verdict
from hermes.gateway.outbound import enqueue_text
from hermes.gateway.platform import Inbound
from hermes.store.ids import session_key
from hermes.store.inbox import set_status
from hermes.store.store import Store
from hermes.types import Session

log = logging.getLogger("hermes.gateway")
STOP = "/stop"


@dataclass(frozen=True, slots=True)
class Received:
    """What became of a message: a fresh inbox item, or nothing new."""

    key: str
    item_key: str
    fresh: bool
    verdict: Verdict


class Inbox:
    """Takes messages in. `stop` ends the running turn of a session key; `wake` tells the lanes and the delivery."""

    def __init__(
        self, store: Store, agent_name: str, access: Access, *, stop: Callable[[str], bool], wake: asyncio.Event
    ) -> None:
        self._store = store
        self._agent_name = agent_name
        self._access = access
        self._stop = stop
        self._wake = wake

    def key_of(self, message: Inbound) -> str:
        """The session key of a message."""
        chat = message.chat
        made = session_key(self._agent_name, chat.platform, chat.chat_type, chat.chat_id, chat.thread_id)
        return message.session_key or made

    async def receive(self, message: Inbound) -> Received:
        """Commit a message. When this returns it cannot get lost, and the same one again has no effect."""
        key = self.key_of(message)
        received = await self._store.write(lambda tx: self._commit(tx, key, message))
        if message.text.strip() == STOP and received.verdict.kind == "welcome" and received.fresh:
            stopped = self._stop(key)
            text = "Stopped." if stopped else "Nothing is running."
            await self._store.write(
                lambda tx: enqueue_text(
                    tx, message.chat, key, f"stop:{received.item_key}", text, now=self._store.clock.now()
                )
            )
        self._wake.set()
        return received

    async def report(self, part: str, state: str, detail: str) -> None:
        """Tell how a platform is."""
        log.log(logging.INFO if state == "ok" else logging.WARNING, "%s: %s %s", part, state, detail)
        await self._store.write(lambda tx: set_status(tx, part, state, detail, now=self._store.clock.now()))

    def _commit(self, tx: Tx, key: str, message: Inbound) -> Received:
        now = self._store.clock.now()
        item_key = f"{message.chat.platform}:{message.chat.chat_id}:{message.message_id}"
        verdict = self._access.judge(tx, message, now=now)
        if verdict.kind == "refused":
            enqueue_text(tx, message.chat, key, f"refusal:{item_key}", verdict.refusal, now=now)
        if verdict.kind != "welcome":
            return Received(key, item_key, False, verdict)
        session = self.open_session(tx, key, message)
        lane = key if message.text.strip() != STOP else f"{key}#stop"
        fresh = queue.enqueue(tx, INBOX, lane, item_key, message.to_json(), now=now, session_id=session.id)
        return Received(key, item_key, fresh, verdict)

    def open_session(self, tx: Tx, key: str, message: Inbound) -> Session:
        """The session a key is bound to; a key that is new gets one, in the same transaction."""
        bound = self._store.routes.lookup(tx, key)
        if bound is not None:
            return self._store.sessions.get(tx, bound)
        if message.session_id is not None and self._store.sessions.exists(tx, message.session_id):
            session = self._store.sessions.get(tx, message.session_id)
        else:
            session = self.new_session(tx, key, message, session_id=message.session_id)
        self._store.routes.bind(tx, key, session.id, now=self._store.clock.now())
        return session

    def new_session(self, tx: Tx, key: str, message: Inbound, *, session_id: str | None = None) -> Session:
        """A fresh session for a chat."""
        return self._store.sessions.create(
            tx,
            source=message.chat.platform,
            now=self._store.clock.now(),
            random_hex=secrets.token_hex,
            session_id=session_id,
            user_id=message.author_id if message.chat.chat_type == "dm" else None,
            session_key=key,
            chat_id=message.chat.chat_id,
            chat_type=message.chat.chat_type,
            thread_id=message.chat.thread_id,
        )
