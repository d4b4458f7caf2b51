"""The open store: its file, and the repositories that live in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from msgspec import Struct

from hermes.clock import Clock
from hermes.db.engine import StoreDatabase, Tx, migrate, refuse_newer
from hermes.db.leases import Lease
from hermes.events import MemoryUpdated
from hermes.scope import Scope
from hermes.sqlite.connection import read_text
from hermes.store.compressions import Compressions
from hermes.store.deletion import Deletions
from hermes.store.hidden import Incognito
from hermes.store.last_turns import ConversationTurns
from hermes.store.messages import Messages
from hermes.store.reviews import due_sessions, has_remarks, take_remarks
from hermes.store.routes import Routes
from hermes.store.schema import (
    MESSAGES,
    MIGRATIONS,
    SESSIONS,
    TableShape,
    index_parents,
    read_shape,
    refuse_foreign,
    undone_rows,
)
from hermes.store.search import Search
from hermes.store.session_settings import untitled_sessions
from hermes.store.sessions import Sessions
from hermes.store.synced import UnsyncedMessages
from hermes.types import Draft, LiveView, Message, Session

T = TypeVar("T")


class _Opened(Struct, frozen=True):
    session_shape: TableShape
    message_shape: TableShape
    has_old_routes: bool


class Store:
    """One `state.db`. Combine its repositories in one transaction with `write`; the methods below cover common
    cases."""

    def __init__(self, db: StoreDatabase, clock: Clock, opened: _Opened, old_routes_file: Path) -> None:
        self.db = db
        self.clock = clock
        self.sessions = Sessions(opened.session_shape, opened.message_shape)
        self.messages = Messages(opened.message_shape, self.sessions)
        self.compressions = Compressions(self.sessions, self.messages)
        self.incognito = Incognito(undone_rows(opened.message_shape))
        shapes = (opened.session_shape, opened.message_shape)
        self.unsynced = UnsyncedMessages(self.sessions, self.messages, self.incognito, shapes)
        self.routes = Routes(self.sessions, old_routes_file, opened.has_old_routes)
        self.search = Search(opened.message_shape, opened.session_shape)
        self.turns = ConversationTurns(opened.message_shape, self.sessions, self.messages, self.compressions)
        shape = opened.session_shape
        self.deletions = Deletions(self.sessions, self.unsynced, self.search, shape, opened.has_old_routes)
        self.unreleased: dict[str, Lease] = {}
        """Leases whose release failed because nothing could be written, by their name in the log."""

    @classmethod
    async def open(cls, path: Path, *, clock: Clock, lock_timeout: float, old_routes_file: Path | None = None) -> Store:
        """Open a file in place, or create one. Existing rows are not changed."""
        db = StoreDatabase(path, lock_timeout=lock_timeout, inspect=_inspect)
        try:
            opened = await db.write(lambda tx: _prepare(tx, clock.now()))
        except BaseException:
            await db.close()
            raise
        return cls(db, clock, opened, old_routes_file or path.parent / "sessions" / "sessions.json")

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish every accepted write and close the file."""
        await self.db.close()

    async def write(self, run: Callable[[Tx], T]) -> T:
        """Run `run` in one durable transaction."""
        return await self.db.write(run)

    async def read(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on one consistent snapshot."""
        return await self.db.read(run)

    async def read_once(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on one consistent snapshot exactly once, for callers that print while they read. (`read` starts
        over when it meets text that is not UTF-8.) Reading text is slower."""

        def run_once(tx: Tx) -> T:
            tx.text_factory = read_text
            return run(tx)

        return await self.db.read(run_once)

    async def look(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on one consistent snapshot, in the writer's connection. Keep it short: writes wait meanwhile."""
        return await self.db.look(run)

    async def tidy(self) -> None:
        """Remove deleted content from the files for good: words from the index, text from the log. Raises
        StoreBusyError if the log is in constant use; it is then overwritten by later writes."""
        begin = True
        while await self.write(partial(self.search.tidy, begin=begin)):
            begin = False
        await self.db.empty_log()

    async def create_session(self, source: str, *, session_id: str | None = None, title: str | None = None) -> Session:
        """Create and commit a session."""
        now = self.clock.now()

        def create(tx: Tx) -> Session:
            chosen = self.sessions.new_id(tx, now) if session_id is None else session_id
            return self.sessions.create(tx, Session(chosen, source, now, title=title))

        return await self.write(create)

    async def append(self, session_id: str, *drafts: Draft) -> list[Message]:
        """Append messages to a session, in order, and commit."""
        return await self.write(lambda tx: self.messages.append(tx, session_id, drafts, now=self.clock.now()))

    async def view(self, session_id: str) -> LiveView:
        """Return what the model sees of a session now. Raises NotFoundError."""
        return await self.read(lambda tx: self.compressions.view(tx, session_id))

    async def view_since(self, seen: LiveView) -> LiveView:
        """Return what the model sees now, given an earlier view; reads only what is new."""
        return await self.read(lambda tx: self.compressions.view_since(tx, seen))

    async def unreviewed(self, left_before: float, limit: int) -> list[Session]:
        """Return sessions to review now: idle since before `left_before`, or with a failed review. Those with the
        fewest failures come first."""
        now = self.clock.now()
        return await self._find(lambda tx: due_sessions(tx, left_before=left_before, now=now, limit=limit))

    async def untitled(self, left_before: float, limit: int) -> list[Session]:
        """Return sessions that need a title: idle since before `left_before`, or failed. Those with the fewest failures
        come first."""
        return await self._find(lambda tx: untitled_sessions(tx, left_before=left_before, limit=limit))

    async def _find(self, find: Callable[[Tx], list[str]]) -> list[Session]:
        """Return the sessions with these ids that exist."""
        return await self.read(
            lambda tx: [self.sessions.get(tx, key) for key in find(tx) if self.sessions.exists(tx, key)]
        )

    async def take_remarks(self, scope: Scope) -> list[MemoryUpdated]:
        """Delete and return the pending notices of a scope. The caller must show them."""
        if not await self.read(lambda tx: has_remarks(tx, scope)):
            return []
        return await self.write(lambda tx: take_remarks(tx, scope))

    async def index(self, progress: Callable[[int], None] | None = None) -> None:
        """Bring the search index up to date in batches; `progress` is called with the size of each."""
        while await self.read(self.search.behind):
            done = await self.write(self.search.catch_up)
            if progress is not None:
                progress(done)


def _inspect(tx: Tx) -> None:
    refuse_newer(tx, MIGRATIONS)
    refuse_foreign(tx)


def _prepare(tx: Tx, now: float) -> _Opened:
    tx.execute(SESSIONS)
    tx.execute(MESSAGES)
    migrate(tx, MIGRATIONS, now)
    session_shape, message_shape = read_shape(tx)
    index_parents(tx, session_shape)
    old_routes = tx.execute("SELECT 1 FROM sqlite_master WHERE name = 'gateway_routing'").fetchone()
    return _Opened(session_shape, message_shape, old_routes is not None)
