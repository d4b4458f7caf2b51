"""The transcript of a session: its messages with tool calls folded, and beside each reply the memories in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.errors import NotFoundError
from hermes.scope import OWNER
from hermes.store.injections import Injection, list_injections
from hermes.store.people import People
from hermes.store.sessions import Listed
from hermes.store.store import Store
from hermes.types import Compression, Message, Session, ToolCall

MAX_PAGE_MESSAGES = 60
"""Maximum number of messages on a page of a session."""
MAX_LISTED_SESSIONS = 40
"""Number of sessions on a page of the list."""


class ShownMessage(Struct, frozen=True):
    """One message of a transcript. `call` is the call that a tool's result answers, `injection` what memory contributed
    to the reply."""

    message: Message
    call: ToolCall | None = None
    injection: Injection | None = None
    is_incognito: bool = False


class ShownSession(Struct, frozen=True):
    """A page of a session, the oldest message first."""

    session: Session
    shown: Sequence[ShownMessage]
    compressions: Mapping[int, Compression] = {}
    """Compressions by the last message that each covers: the model sees earlier messages as a summary."""
    has_earlier: bool = False
    is_incognito: bool = False
    """True if the next message stays out of memory."""
    last_id: int = 0
    """Id of the session's newest message, on this page or not."""


def find_own(store: Store, people: People, tx: Tx, session_id: str) -> Session:
    """Return the owner's session with this id. Raises NotFoundError, also for a guest's or a group's session."""
    found = store.sessions.look_up(tx, session_id)
    if found is None or people.scope_of(tx, found) != OWNER:
        raise NotFoundError(f"there is no session '{session_id[:80]}'", hint="It may have been deleted")
    return found


def list_own(store: Store, people: People, tx: Tx, page: int) -> tuple[list[Listed], bool]:
    """Return a page of the owner's sessions, the most recently active first, and whether there are more."""
    wanted, limit = page * MAX_LISTED_SESSIONS, page * MAX_LISTED_SESSIONS + 1
    while True:
        read = store.sessions.recent(tx, limit=limit)
        own = [one for one in read if people.scope_of(tx, one.session) == OWNER]
        if len(own) > wanted or len(read) < limit:
            return own[wanted - MAX_LISTED_SESSIONS : wanted], len(own) > wanted
        limit *= 2


def read_transcript(store: Store, people: People, tx: Tx, session_id: str, before: int | None = None) -> ShownSession:
    """Return the newest messages of a session, or those before one."""
    session = find_own(store, people, tx, session_id)
    messages, has_earlier = _read_page(store, tx, session.id, before)
    last = store.messages.last_id(tx, session.id)
    is_incognito = store.incognito.is_on(tx, session.id)
    behind: dict[int, Compression] = {}
    for one in store.compressions.all(tx, session.id):
        if covered := [message.id for message in messages if message.id <= one.horizon_message_id]:
            behind[covered[-1]] = one
    return ShownSession(session, show(store, tx, session.id, messages), behind, has_earlier, is_incognito, last)


def _read_page(store: Store, tx: Tx, session_id: str, before: int | None) -> tuple[list[Message], bool]:
    """Return the messages of a page, and whether there are earlier ones."""
    limit = MAX_PAGE_MESSAGES + 1
    while True:
        found = store.messages.newest(tx, session_id, before, limit)
        start = max(0, len(found) - MAX_PAGE_MESSAGES)
        while start > 0 and found[start].role == "tool":  # a result stays below its call
            start -= 1
        if start > 0 or len(found) < limit:
            return found[start:], start > 0
        limit *= 2


def read_new(store: Store, people: People, tx: Tx, session_id: str, after: int) -> list[ShownMessage]:
    """Return the messages of a session after one. Raises NotFoundError if the session is gone."""
    find_own(store, people, tx, session_id)
    if store.messages.last_id(tx, session_id) <= after:
        return []
    # From the last question on: a result needs the call that it answers.
    since = min(after, store.messages.last_said(tx, session_id) - 1)
    shown = show(store, tx, session_id, store.messages.live_after(tx, session_id, since))
    return [one for one in shown if one.message.id > after]


def show(store: Store, tx: Tx, session_id: str, messages: Sequence[Message]) -> list[ShownMessage]:
    """Return messages with their tool calls and injections."""
    calls = {call.id: call for message in messages for call in message.tool_calls}
    left_out = store.incognito.ids(tx, session_id, min((one.id for one in messages), default=0))
    brought = {one.message_id: one for one in list_injections(tx, session_id)}
    said = store.messages.said_after(tx, session_id, min(brought, default=0) - 1) if brought else []

    def find_injection(message: Message) -> Injection | None:
        if message.role != "assistant" or message.tool_calls or not brought:
            return None
        return brought.get(max((one for one in said if one < message.id), default=0))

    return [
        ShownMessage(one, calls.get(one.tool_call_id or ""), find_injection(one), one.id in left_out)
        for one in messages
    ]
