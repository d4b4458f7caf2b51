"""Chats: which session a message is said in, and whether its author may speak there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec.structs import replace

from hermes.db.engine import Tx
from hermes.scope import API, DIRECT, OWNER, Group, Scope
from hermes.store.ids import session_key
from hermes.store.inbox import first_chat_id
from hermes.store.people import People
from hermes.store.sessions import check_foreign_id
from hermes.store.store import Store
from hermes.types import Session


class ChatAddress(Protocol):
    """A chat of a platform, or a thread in it."""

    @property
    def platform(self) -> str: ...
    @property
    def chat_type(self) -> str: ...
    @property
    def chat_id(self) -> str: ...
    @property
    def thread_id(self) -> str | None: ...


class Addressed(Protocol):
    """A message, as far as it tells where it belongs: a chat, and the key or session that a client names."""

    @property
    def chat(self) -> ChatAddress: ...
    @property
    def author_id(self) -> str | None: ...
    @property
    def author_is_agent(self) -> bool: ...
    @property
    def session_key(self) -> str | None: ...
    @property
    def session_id(self) -> str | None: ...


class Chats:
    """The chats of one agent. Every method runs inside the caller's transaction."""

    def __init__(self, store: Store, agent_name: str, people: People) -> None:
        self._people = people
        self._agent_name = agent_name
        self._sessions = store.sessions
        self._routes = store.routes

    def key_of(self, tx: Tx, message: Addressed) -> str:
        """The session key of a message: the client's own, that of the session it names, or made of the chat."""
        if message.session_key is not None:
            return _first_key(tx, message.session_key)
        named = self._sessions.look_up(tx, message.session_id) if message.session_id is not None else None
        if named is not None and named.session_key:
            return named.session_key
        return self.key_of_chat(tx, message.chat)

    def key_of_chat(self, tx: Tx, chat: ChatAddress) -> str:
        """A chat that got another id keeps its key. Its threads are new ones: there were none before."""
        chat_id = first_chat_id(tx, chat.platform, chat.chat_id) if chat.thread_id is None else chat.chat_id
        return session_key(self._agent_name, chat.platform, chat.chat_type, chat_id, chat.thread_id)

    def enter(self, tx: Tx, messages: Sequence[Addressed], *, now: float) -> tuple[Session, Scope, tuple[bool, ...]]:
        """The session of messages that are said together, how far it reaches, and of each whether the owner says it.
        The session carries the key that the first one came by, which memory is told."""
        key = self.key_of(tx, messages[0])
        session = self.open_session(tx, key, messages[0], now=now)
        owners = [
            not one.author_is_agent and self._people.is_owner(tx, one.chat.platform, one.author_id) for one in messages
        ]
        return replace(session, session_key=key), self._people.scope_of(tx, session), tuple(owners)

    def open_session(self, tx: Tx, key: str, message: Addressed, *, now: float) -> Session:
        """The session that a message names, else the one its key is bound to. A new one is made, and a key that is new
        is bound, in the same transaction. A key that is bound already is never moved by this."""
        sessions, named = self._sessions, message.session_id
        bound = self._bound(tx, key, message)
        if named is None and bound is not None:
            return sessions.get(tx, bound)
        if named is not None and sessions.exists(tx, named):
            session = sessions.get(tx, sessions.live_id(tx, named))
        else:
            session = self.new_session(tx, key, message, now=now, session_id=named)
        if bound is None:
            self._routes.bind(tx, key, session.id, now=now)
        return session

    def _bound(self, tx: Tx, key: str, message: Addressed) -> str | None:
        """The session that a key is bound to, or None if the author may not talk in it. So a client that has taken a
        chat's key before the chat used it never gets what others say."""
        bound = self._routes.lookup(tx, key)
        return bound if bound is not None and self._admits(tx, bound, message) else None

    def may_name(self, tx: Tx, key: str, message: Addressed) -> bool:
        """Whether the author may use the session or key that the message names: their own, or a new one. Raises
        UsageError for an id that no session may have."""
        sessions, named = self._sessions, message.session_id
        if named is not None:
            check_foreign_id(named)
        meant = [] if named is None or not sessions.exists(tx, named) else [named, sessions.live_id(tx, named)]
        if message.session_key is not None and (bound := self._routes.lookup(tx, key)) is not None:
            meant.append(bound)
        return all(self._admits(tx, one, message) for one in meant)

    def _admits(self, tx: Tx, session_id: str, message: Addressed) -> bool:
        """Whether a message may be said in a session: the owner's over the API in any, others in their own alone."""
        reach = self.reach_of(tx, message)
        if message.chat.chat_type == API and reach == OWNER:
            return True
        return _same(tx, self._people.scope_of(tx, self._sessions.get(tx, session_id)), reach)

    def reach_of(self, tx: Tx, message: Addressed) -> Scope:
        """How far the chat reaches that a message comes from."""
        if message.chat.chat_type in DIRECT:
            return self._people.scope_of_person(tx, message.chat.platform, message.author_id)
        return Group(self.key_of_chat(tx, message.chat))

    def new_session(
        self, tx: Tx, key: str, message: Addressed, *, now: float, session_id: str | None = None
    ) -> Session:
        """A fresh session for a chat; `key` names its lane."""
        chat, chosen = message.chat, self._sessions.new_id(tx, now) if session_id is None else session_id
        author = message.author_id if chat.chat_type in DIRECT else None
        session = Session(chosen, chat.platform, now, author, key, chat.chat_id, chat.chat_type, chat.thread_id)
        return self._sessions.create(tx, session)

    def lane_of(self, session: Session) -> str:
        """The inbox lane of a session, the same however a message names the session. After `/new` the next session uses
        the same lane, so that order is kept."""
        return session.session_key or session_key(self._agent_name, API, API, session.id)

    def names_of(self, tx: Tx, message: Addressed) -> tuple[Collection[str], set[str]]:
        """Every session id and every key by which one can name the session that a message names."""
        named = message.session_id or self._routes.lookup(tx, message.session_key or "")
        if named is None or not self._sessions.exists(tx, named):
            return (), set()
        lineage = self._sessions.lineage(tx, named)
        keys = {key for one in lineage for key in self._routes.keys_of(tx, one)}
        own = (message.session_key, self._sessions.get(tx, named).session_key)
        return lineage, keys | {key for key in own if key is not None}


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
