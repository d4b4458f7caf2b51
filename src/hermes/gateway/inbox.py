"""The durable inbox: a message is committed before its platform hears that it arrived, and one that comes twice has one
effect.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from hermes.db import queue, queue_items
from hermes.db.engine import Tx
from hermes.db.lanes import join_lanes
from hermes.db.queue import Item
from hermes.events import Replied
from hermes.gateway.access import Access, Verdict
from hermes.gateway.batch import Batch, is_stop
from hermes.gateway.inbox_record import done_with
from hermes.gateway.outbound import enqueue_text
from hermes.gateway.platform import Chat, Inbound, Moved
from hermes.scope import API, DIRECT, OWNER, Group, Scope
from hermes.slash.acts import NOT_RUNNING, STOPPED
from hermes.store.ids import session_key
from hermes.store.inbox import said_already, set_status
from hermes.store.moved_chats import first_chat_id, record_move
from hermes.store.people import People
from hermes.store.store import Store
from hermes.types import Session

log = logging.getLogger("hermes.gateway")


class Received(Struct, frozen=True):
    """What became of a message: a fresh inbox item, or nothing new.

    `session_id` is the session that it goes to, None for someone who may not talk. `stopped` tells of a `/stop` whether
    it ended a turn, `other` that its id was given to another text before: this one is not taken.
    """

    key: str
    item_key: str
    session_id: str | None
    fresh: bool
    verdict: Verdict
    stopped: bool | None = None
    other: bool = False


class OpenedSession(Struct, frozen=True):
    """The session that a batch is said in."""

    session: Session
    scope: Scope
    owners: tuple[bool, ...]
    """Of each message, whether the owner says it."""
    known: Mapping[int, int]
    """The items that were said before a crash, with their messages."""


class Inbox:
    """Takes messages in. `stop` ends the running turn of a session; `wake` tells the lanes and the delivery."""

    def __init__(
        self,
        store: Store,
        agent_name: str,
        access: Access,
        people: People,
        *,
        stop: Callable[[str], bool],
        wake: asyncio.Event,
    ) -> None:
        self._store = store
        self._agent_name = agent_name
        self._access = access
        self.people = people
        self._stop = stop
        self._wake = wake

    async def receive(self, message: Inbound) -> Received:
        """Commit a message. When this returns it cannot get lost, and the same one again has no effect."""
        received = await self._store.write(lambda tx: self._commit(tx, message))
        if received.fresh and is_stop(message.text):
            received = replace(received, stopped=self._stop(received.session_id or ""))
            await self._store.write(lambda tx: self._tell_of_stop(tx, message, received))
        if received.fresh:
            self._wake.set()
        return received

    async def move(self, moved: Moved) -> None:
        """A chat has another id now: its conversation goes on there. When this returns that is known for good, and the
        same again has no effect."""
        if await self._store.write(lambda tx: self._move(tx, moved.old, moved.new)):
            log.info("%s: chat %s is %s now", moved.old.platform, moved.old.chat_id, moved.new.chat_id)
            self._wake.set()  # what waited in a lane of the new id waits in the other one now

    async def report(self, part: str, state: str, detail: str) -> None:
        """Tell how a platform is."""
        log.log(logging.INFO if state in ("ok", "starting") else logging.WARNING, "%s: %s %s", part, state, detail)
        await self._store.write(lambda tx: set_status(tx, part, state, detail, now=self._store.clock.now()))

    def _commit(self, tx: Tx, message: Inbound) -> Received:
        now = self._store.clock.now()
        key, item_key = self.key_of(tx, message), item_key_of(message)
        verdict = self._access.judge(tx, message, now=now)
        if verdict.kind == "refused":
            enqueue_text(tx, message.chat, key, f"refusal:{item_key}", verdict.refusal, now=now)
        if verdict.kind == "welcome" and not self._may_name(tx, key, message):
            verdict = Verdict("refused")
        if verdict.kind != "welcome":
            return Received(key, item_key, None, False, verdict)
        if (known := find_item(tx, self._store, message)) is not None:
            other = known.payload is not None and known.payload["text"] != message.text
            return Received(key, known.key, known.session_id, False, verdict, other=other)
        session = self.open_session(tx, key, message)
        lane = self._lane_of(session)
        queue.enqueue(tx, INBOX, lane, item_key, message.to_json(), now=now, session_id=session.id)
        return Received(key, item_key, session.id, True, verdict)

    def _tell_of_stop(self, tx: Tx, message: Inbound, received: Received) -> None:
        """Record the answer to `/stop`, so that a repeated one gets the same, and queue it for a chat. Over HTTP the
        open request gets it."""
        now, text = self._store.clock.now(), STOPPED if received.stopped else NOT_RUNNING
        note = done_with(Replied(received.session_id or "", 0, text)).note
        queue_items.conclude(tx, INBOX, received.item_key, note or "", now=now)
        if message.chat.chat_type != API:
            enqueue_text(tx, message.chat, received.key, f"stop:{received.item_key}", text, now=now)

    def key_of(self, tx: Tx, message: Inbound) -> str:
        """The session key of a message: the client's own, that of the session it names, or made of the chat."""
        if message.session_key is not None:
            return _first_key(tx, message.session_key)
        named = self._store.sessions.look_up(tx, message.session_id) if message.session_id is not None else None
        if named is not None and named.session_key:
            return named.session_key
        return self._key_of_chat(tx, message.chat)

    def _key_of_chat(self, tx: Tx, chat: Chat) -> str:
        """A chat that got another id keeps its key. Its threads are new ones: there were none before."""
        chat_id = first_chat_id(tx, chat.platform, chat.chat_id) if chat.thread_id is None else chat.chat_id
        return session_key(self._agent_name, chat.platform, chat.chat_type, chat_id, chat.thread_id)

    def _move(self, tx: Tx, old: Chat, new: Chat) -> bool:
        """Record that a chat has a new id; False if that is known. If people already spoke under the new id, that
        session ends and the older conversation goes on."""
        now, routes = self._store.clock.now(), self._store.routes
        before, after = self._key_of_chat(tx, old), self._key_of_chat(tx, new)
        if not record_move(tx, old.platform, old.chat_id, new.chat_id, now=now):
            return False
        kept, early = routes.lookup(tx, before), routes.lookup(tx, after)
        if kept is None and early is not None:
            routes.bind(tx, before, early, now=now)
        elif kept is not None and early is not None:
            self._store.sessions.end(tx, early, "chat_moved", now=now)
            routes.bind(tx, after, kept, now=now)
            lanes = [self._lane_of(self._store.sessions.get(tx, one)) for one in (early, kept)]
            join_lanes(tx, INBOX, *lanes)
        return True

    def _lane_of(self, session: Session) -> str:
        """The inbox lane of a session, the same however a message names the session. After `/new` the next session uses
        the same lane, so that order is kept."""
        return session.session_key or session_key(self._agent_name, API, API, session.id)

    async def open_batch(self, batch: Batch) -> OpenedSession:
        """The session of a batch at this moment. It carries the key that the message came by, which memory is told."""
        people, first = self.people, batch.first

        def open_batch(tx: Tx) -> OpenedSession:
            key = self.key_of(tx, first)
            session = self.open_session(tx, key, first)
            queue_items.assign(tx, batch.items, session.id)
            owners = [people.is_owner(tx, said.chat.platform, said.author_id) for said in batch.messages]
            known = said_already(tx, [item.id for item in batch.items])
            return OpenedSession(replace(session, session_key=key), people.scope_of(tx, session), tuple(owners), known)

        return await self._store.write(open_batch)

    def open_session(self, tx: Tx, key: str, message: Inbound) -> Session:
        """The session that a message names, else the one its key is bound to. A new one is made, and a key that is new
        is bound, in the same transaction. A key that is bound already is never moved by this."""
        sessions, named = self._store.sessions, message.session_id
        bound = self._bound(tx, key, message)
        if named is None and bound is not None:
            return sessions.get(tx, bound)
        if named is not None and sessions.exists(tx, named):
            session = sessions.get(tx, sessions.live_id(tx, named))
        else:
            session = self.new_session(tx, key, message, session_id=named)
        if bound is None:
            self._store.routes.bind(tx, key, session.id, now=self._store.clock.now())
        return session

    def _bound(self, tx: Tx, key: str, message: Inbound) -> str | None:
        """The session that a key is bound to, or None if the author may not talk in it. So a client that has taken a
        chat's key before the chat used it never gets what others say."""
        bound = self._store.routes.lookup(tx, key)
        return bound if bound is not None and self._admits(tx, bound, message) else None

    def _may_name(self, tx: Tx, key: str, message: Inbound) -> bool:
        """Whether the author may use the session or key that the message names: their own, or a new one."""
        sessions, named = self._store.sessions, message.session_id
        meant = [] if named is None or not sessions.exists(tx, named) else [named, sessions.live_id(tx, named)]
        if message.session_key is not None and (bound := self._store.routes.lookup(tx, key)) is not None:
            meant.append(bound)
        return all(self._admits(tx, one, message) for one in meant)

    def _admits(self, tx: Tx, session_id: str, message: Inbound) -> bool:
        """Whether a message may be said in a session: the owner's over the API in any, others in their own alone."""
        reach = self.reach_of(tx, message)
        if message.chat.chat_type == API and reach == OWNER:
            return True
        return _same(tx, self.people.scope_of(tx, self._store.sessions.get(tx, session_id)), reach)

    def reach_of(self, tx: Tx, message: Inbound) -> Scope:
        """How far the chat reaches that a message comes from."""
        if message.chat.chat_type in DIRECT:
            return self.people.scope_of_person(tx, message.chat.platform, message.author_id)
        return Group(self._key_of_chat(tx, message.chat))

    def new_session(self, tx: Tx, key: str, message: Inbound, *, session_id: str | None = None) -> Session:
        """A fresh session for a chat; `key` names its lane."""
        return self._store.sessions.create(
            tx,
            source=message.chat.platform,
            now=self._store.clock.now(),
            random_hex=secrets.token_hex,
            session_id=session_id,
            user_id=message.author_id if message.chat.chat_type in DIRECT else None,
            session_key=key,
            chat_id=message.chat.chat_id,
            chat_type=message.chat.chat_type,
            thread_id=message.chat.thread_id,
        )


def _same(tx: Tx, one: Scope, other: Scope) -> bool:
    """Whether two scopes are one. A group that got another id is the same group."""
    if isinstance(one, Group) and isinstance(other, Group):
        return _first_key(tx, one.session_key) == _first_key(tx, other.session_key)
    return one == other


def _first_key(tx: Tx, key: str) -> str:
    """The key that a chat's conversation has for life, where `key` is made of a later id of the chat."""
    parts = key.split(":")
    if len(parts) != 5 or parts[0] != "agent":
        return key
    return ":".join([*parts[:4], first_chat_id(tx, parts[2], parts[4])])


INBOX = "inbox"
"""The queue of what people said. Its lanes are conversations."""


def item_key_of(message: Inbound) -> str:
    """The inbox key of a message: the platform's message id, together with how the message names its conversation."""
    if message.session_id is not None:
        return _in_session(message, message.session_id)
    if message.session_key is not None:
        return _under_key(message, message.session_key)
    chat = message.chat
    return _join(chat.platform, chat.chat_type, chat.chat_id, message.message_id)


def find_item(tx: Tx, store: Store, message: Inbound) -> Item | None:
    """The inbox item of a message that arrived before, even if it named the same session in another way then."""
    found = queue_items.find(tx, INBOX, item_key_of(message))
    if found is not None or (message.session_id is None and message.session_key is None):
        return found
    return next(_renamed(tx, store, message), None)


def _renamed(tx: Tx, store: Store, message: Inbound) -> Iterator[Item]:
    """Items with the same message id under every other name of the session."""
    named = message.session_id or store.routes.lookup(tx, message.session_key or "")
    if named is None or not store.sessions.exists(tx, named):
        return
    lineage = store.sessions.lineage(tx, named)
    for session_id in lineage:
        if (item := queue_items.find(tx, INBOX, _in_session(message, session_id))) is not None:
            yield item
    keys = {key for one in lineage for key in store.routes.keys_of(tx, one)}
    for key in {*keys, message.session_key, store.sessions.get(tx, named).session_key} - {None}:
        item = queue_items.find(tx, INBOX, _under_key(message, key or ""))
        if item is not None and item.session_id in lineage:  # a key may have meant another session then
            yield item


def _in_session(message: Inbound, session_id: str) -> str:
    return _join(message.chat.platform, "session", session_id, message.message_id)


def _under_key(message: Inbound, key: str) -> str:
    return _join(message.chat.platform, "key", key, message.message_id)


def _join(*parts: str) -> str:
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
