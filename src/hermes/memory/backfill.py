"""Backfill: earlier conversations become outbox rows, as if the provider had been active then.

    sessions, oldest first ──> messages not sent before ──> a batch of rows in one commit ──> room? ──> the next

A message is marked as sent in the commit of its row, so a repeated or killed backfill continues with the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.errors import ProviderError
from hermes.memory.active import ActiveProvider
from hermes.memory.outbox import Destination
from hermes.memory.values import Address, Conversation, Speaker, speaker_of
from hermes.store.memory_rows import find_place
from hermes.store.people import People
from hermes.types import Message, Session

MAX_MESSAGES_PER_COMMIT = 200
Describe = Callable[[Tx, Session], Conversation]
"""Describes a session that nobody has open."""
WaitForRoom = Callable[[], Awaitable[bool]]
"""Waits until more entries may be queued; False if that is not expected soon."""


class Earlier(Struct, frozen=True):
    """A session, and the number of its messages that a provider has not received."""

    session_id: str
    messages: int


class BackfillProgress(Struct, frozen=True):
    """The progress of a backfill. `refused` counts messages that the provider's settings exclude."""

    sessions: int = 0
    messages: int = 0
    refused: int = 0


class Backfill:
    """Queues the messages that one provider has not received. Incognito messages stay out."""

    def __init__(self, provider: ActiveProvider, people: People, describe: Describe) -> None:
        self._provider = provider
        self._store = provider.store
        self._people = people
        self._describe = describe

    async def find(self) -> list[Earlier]:
        """Return the sessions with unsent messages, oldest first."""
        name, unsynced = self._provider.name, self._store.unsynced
        found: list[Earlier] = []
        for session_id in await self._store.read(lambda tx: unsynced.sessions(tx, name)):
            if messages := await self._read(session_id):
                found.append(Earlier(session_id, len(messages)))
        return found

    async def take_in(
        self, sessions: Sequence[Earlier], room: WaitForRoom, tell: Callable[[BackfillProgress], object]
    ) -> tuple[BackfillProgress, bool]:
        """Queue the unsent messages of these sessions in batches. Return the progress, and whether all were queued.
        Raises ProviderError if the provider has no address for a session."""
        done = BackfillProgress()
        for earlier in sessions:
            messages = await self._read(earlier.session_id)
            if not messages:
                continue
            destination, address = await self._address(earlier.session_id)
            if not {"said", "reply"} & address.wants:
                done = BackfillProgress(done.sessions, done.messages, done.refused + len(messages))
                continue
            for start in range(0, len(messages), MAX_MESSAGES_PER_COMMIT):
                if not await room():
                    return done, False
                taken = await self._queue(destination, messages[start : start + MAX_MESSAGES_PER_COMMIT])
                done = BackfillProgress(done.sessions, done.messages + taken, done.refused)
                tell(done)
            done = BackfillProgress(done.sessions + 1, done.messages, done.refused)
            tell(done)
        return done, True

    async def _read(self, session_id: str) -> list[Message]:
        name, unsynced = self._provider.name, self._store.unsynced
        return await self._store.read(lambda tx: unsynced.messages(tx, name, session_id))

    async def _address(self, session_id: str) -> tuple[Destination, Address]:
        """Return the destination and address of a session. One that the provider already knows keeps its binding."""
        store, provider = self._store, self._provider

        def look(tx: Tx) -> Conversation:
            known = find_place(tx, provider.name, session_id)
            if known is not None:
                return Conversation.from_json(known.about, known.bound)
            return self._describe(tx, store.sessions.get(tx, session_id))

        about = await store.read(look)
        address = await provider.find_address(session_id, about)
        if address is None:
            raise ProviderError(
                f"{provider.name} cannot say where session {session_id} goes", hint="`hermes memory status` says more"
            )
        return Destination(session_id, about, address), address

    async def _queue(self, destination: Destination, messages: Sequence[Message]) -> int:
        store, outbox = self._store, self._provider.outbox

        def record(tx: Tx) -> int:
            session = store.sessions.look_up(tx, destination.place)
            if session is None:  # deleted meanwhile
                return 0
            known = store.incognito.remembered(tx, messages)  # some may have been forgotten meanwhile
            spoken = [(message, self._speaker(tx, destination.about, session, message)) for message in known]
            return outbox.take_in(tx, destination, spoken, now=store.clock.now())

        taken = await store.write(record)
        self._provider.wake.set()
        return taken

    def _speaker(self, tx: Tx, about: object, session: Session, message: Message) -> Speaker:
        """Return a message's speaker. Other versions do not store whether it was the owner; older ones store only the
        session's person."""
        assert isinstance(about, Conversation)
        person, is_owner = about.person, message.author_is_owner
        if is_owner is None and message.author_id is not None:
            is_owner = self._people.is_owner(tx, about.platform, message.author_id)
        elif is_owner is None and person is None and _is_with_one(session):
            person = Speaker(session.user_id, is_owner=self._people.is_owner(tx, session.source, session.user_id))
        return speaker_of(person, message, is_owner=bool(is_owner))


def _is_with_one(session: Session) -> bool:
    """Return True if the session has one person, and nothing suggests others in its chat."""
    is_alone = session.chat_id in (None, session.user_id)
    return bool(session.user_id) and session.chat_type is None and not session.session_key and is_alone
