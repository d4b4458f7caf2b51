"""Slash commands in chats. They run in the order of their lane, except those that overtake, such as `/stop`."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from hermes.agent.agent import Agent
from hermes.db.engine import Tx
from hermes.gateway.inbox import Inbox
from hermes.gateway.platform import Inbound
from hermes.scope import Group
from hermes.slash.here import Surface
from hermes.store.store import Store
from hermes.types import Message

SESSION_IS_NAMED = (
    "Your program names this session, so it stays the same one: begin a new chat there, or use another session id."
)


class InChat(Struct, frozen=True):
    """The context of a command in a chat (implements `Here`)."""

    store: Store
    inbox: Inbox
    agent: Agent
    key: str
    message: Inbound
    stop: asyncio.Event
    cause: str
    is_owner: bool
    surface: Surface = "chat"
    console: None = None

    async def place(self) -> Agent:
        return self.agent

    def may_take_back(self, message: Message) -> bool:
        """Return True if the author may undo a message: the owner any message, others their own."""
        if self.is_owner:
            return True
        if message.author_id is not None:
            return message.author_id == self.message.author_id
        return not (
            message.author_is_owner or isinstance(self.agent.scope, Group)
        )  # rows of other versions name nobody

    async def begin_session(self) -> str:
        if self.message.session_id is not None:
            return SESSION_IS_NAMED
        return f"A new session begins: {await self.store.write(self._begin)}. What was said before is kept."

    def _begin(self, tx: Tx) -> str:
        """Begin a new session, unless the present one is empty: a `/new` that runs again after a crash must not begin a
        second one."""
        now = self.store.clock.now()
        bound = self.inbox.chats.open_session(tx, self.key, self.message, now=now)
        if self.store.messages.last_id(tx, bound.id) == 0:
            return bound.id
        self.store.sessions.end(tx, bound.id, "session_reset", now=now)
        session = self.inbox.chats.new_session(tx, bound.session_key or self.key, self.message, now=now)
        self.store.routes.bind(tx, self.key, session.id, now=now)
        return session.id
