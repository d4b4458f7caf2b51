"""Chats: the session that a message belongs to, and whether its author may write there."""

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
    """A chat on a platform, or a thread in a chat."""

    @property
    def platform(self) -> str: ...
    @property
    def chat_type(self) -> str: ...
    @property
    def chat_id(self) -> str: ...
    @property
    def thread_id(self) -> str | None: ...


class Addressed(Protocol):
    """The routing fields of a message: its chat, its author, and the session or session key that a client names."""

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
        """Return the session key of a message: the one the client names, that of the session it names, or that of the
        chat."""
        if message.session_key is not None:
            return _first_key(tx, message.session_key)
        named = self._sessions.look_up(tx, message.session_id) if message.session_id is not None else None
        if named is not None and named.session_key:
            return named.session_key
        return self.key_of_chat(tx, message.chat)

    def key_of_chat(self, tx: Tx, chat: ChatAddress) -> str:
        """Return the session key of a chat. A chat whose id changed keeps its key; its threads always use the new
        id."""
        chat_id = first_chat_id(tx, chat.platform, chat.chat_id) if chat.thread_id is None else chat.chat_id
        return session_key(self._agent_name, chat.platform, chat.chat_type, chat_id, chat.thread_id)

    def enter(self, tx: Tx, messages: Sequence[Addressed], *, now: float) -> tuple[Session, Scope, tuple[bool, ...]]:
        """Return the session of messages that are sent together, its scope, and for each message whether the owner
        wrote it. The session carries the key of the first message, which memory providers receive."""
        key = self.key_of(tx, messages[0])
        session = self.open_session(tx, key, messages[0], now=now)
        owners = [
            not one.author_is_agent and self._people.is_owner(tx, one.chat.platform, one.author_id) for one in messages
        ]
        return replace(session, session_key=key), self._people.scope_of(tx, session), tuple(owners)

    def open_session(self, tx: Tx, key: str, message: Addressed, *, now: float) -> Session:
        """Return the session that a message names, else the one its key is bound to. Create the session and bind the
        key if they are new. A key that is bound already keeps its binding."""
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
        """Return the session that a key is bound to, or None if the author may not write in it. So a client that claims
        a chat's key before the chat uses it never receives what others write there."""
        bound = self._routes.lookup(tx, key)
        return bound if bound is not None and self._admits(tx, bound, message) else None

    def may_name(self, tx: Tx, key: str, message: Addressed) -> bool:
        """Return True if the author may use the session or key that the message names: their own, or a new one. Raises
        UsageError for an invalid session id."""
        sessions, named = self._sessions, message.session_id
        if named is not None:
            check_foreign_id(named)
        meant = [] if named is None or not sessions.exists(tx, named) else [named, sessions.live_id(tx, named)]
        if message.session_key is not None and (bound := self._routes.lookup(tx, key)) is not None:
            meant.append(bound)
        return all(self._admits(tx, one, message) for one in meant)

    def _admits(self, tx: Tx, session_id: str, message: Addressed) -> bool:
        """Return True if the message may go to the session. Over the API the owner may use any session; everyone else
        only their own."""
        reach = self.reach_of(tx, message)
        if message.chat.chat_type == API and reach == OWNER:
            return True
        return _same(tx, self._people.scope_of(tx, self._sessions.get(tx, session_id)), reach)

    def reach_of(self, tx: Tx, message: Addressed) -> Scope:
        """Return the scope of the chat that a message comes from."""
        if message.chat.chat_type in DIRECT:
            return self._people.scope_of_person(tx, message.chat.platform, message.author_id)
        return Group(self.key_of_chat(tx, message.chat))

    def new_session(
        self, tx: Tx, key: str, message: Addressed, *, now: float, session_id: str | None = None
    ) -> Session:
        """Create a session for a chat; `key` names its lane."""
        chat, chosen = message.chat, self._sessions.new_id(tx, now) if session_id is None else session_id
        author = message.author_id if chat.chat_type in DIRECT else None
        session = Session(chosen, chat.platform, now, author, key, chat.chat_id, chat.chat_type, chat.thread_id)
        return self._sessions.create(tx, session)

    def lane_of(self, session: Session) -> str:
        """Return the inbox lane of a session, however a message names the session. The session that follows `/new` uses
        the same lane, so that order is kept."""
        return session.session_key or session_key(self._agent_name, API, API, session.id)

    def names_of(self, tx: Tx, message: Addressed) -> tuple[Collection[str], set[str]]:
        """Return every session id and every key that refer to the conversation that a message names."""
        named = message.session_id or self._routes.lookup(tx, message.session_key or "")
        if named is None or not self._sessions.exists(tx, named):
            return (), set()
        lineage = self._sessions.lineage(tx, named)
        keys = {key for one in lineage for key in self._routes.keys_of(tx, one)}
        own = (message.session_key, self._sessions.get(tx, named).session_key)
        return lineage, keys | {key for key in own if key is not None}


def _same(tx: Tx, one: Scope, other: Scope) -> bool:
    """Return True if both scopes are the same. A group whose id changed is the same group."""
    if isinstance(one, Group) and isinstance(other, Group):
        return _first_key(tx, one.session_key) == _first_key(tx, other.session_key)
    return one == other


def _first_key(tx: Tx, key: str) -> str:
    """Return the key made of the chat's first id, which the conversation keeps when the chat's id changes."""
    parts = key.split(":")
    if len(parts) != 5 or parts[0] != "agent":
        return key
    return ":".join([*parts[:4], first_chat_id(tx, parts[2], parts[4])])
