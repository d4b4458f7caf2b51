"""A PostgreSQL database that any number of processes share: threads with pooled connections behind `Database`.

A write that conflicts with another is run again; so is one whose connection is lost, on a new connection. If the
connection is lost during COMMIT, the outcome is read from a row that the transaction itself wrote (`commits`), so
nothing is lost or written twice. The transaction's id does not tell: after a crash PostgreSQL may assign it again."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg.pq import Format
from psycopg.types.numeric import NumericBinaryLoader
from psycopg.types.string import StrDumperUnknown
from sqlalchemy import Engine, create_engine, event

from hermes.errors import StoreBusyError, StoreUnreachableError
from hermes.memory_server.db.address import DatabaseAddress
from hermes.memory_server.db.database import DatabaseLoad, Tx
from hermes.memory_server.db.neighbours import VectorScope
from hermes.memory_server.db.postgres_faults import (
    DATABASE_ERRORS,
    find_remedy,
    is_answer,
    is_key_conflict,
    is_locked,
    translate,
)
from hermes.sqlite.reading import ReadLane, TimedRead
from hermes.sqlite.scheduling import CallGroups, GroupedCall, Threads, scheduled_client

log = logging.getLogger(__name__)
T = TypeVar("T")
SCHEMA = "hermes_memory"
CHANNEL = "hermes_memory_jobs"
READERS, WRITERS = 4, 4
"""Threads of one process, each with at most one connection at a time."""
RECOVER_SECONDS = 30.0
"""How long a transaction is retried while the database is unreachable or others conflict with it."""
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.005, 1.0
PREPARE_SECONDS = 600.0
"""How long an upgrade is retried whose locks others hold."""
MAX_KEY_CONFLICTS = 3
"""Errors of keys and references after which a transaction fails: one that keeps meeting them would never succeed."""
CONNECT_SECONDS = 5
LISTEN_SECONDS = 0.5
"""How long closing may wait for the listener thread."""
LOCK_MILLISECONDS = 30_000
"""How long a statement waits for a lock."""
IDLE_MILLISECONDS = 15_000
"""How long a write transaction may be idle. Otherwise a process or machine that vanished would hold its locks for
hours."""
LANE = ReadLane(READERS)
# One round trip each. LOCAL, so that a pooler in transaction mode can lend a connection to others in between.
PATH = f"SET LOCAL search_path = {SCHEMA}"
READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {PATH}"
WRITE = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {PATH}; SET LOCAL lock_timeout = {LOCK_MILLISECONDS}; "
    f"SET LOCAL idle_in_transaction_session_timeout = {IDLE_MILLISECONDS}"
)
COMMITS = f"CREATE TABLE IF NOT EXISTS {SCHEMA}.commits (writer text PRIMARY KEY, number bigint, at timestamptz)"
"""The number of the last transaction that each writer thread committed."""
FORGET_WRITERS = f"DELETE FROM {SCHEMA}.commits WHERE at < now() - interval '1 day'"
NUMBER_COMMIT = f"""
INSERT INTO {SCHEMA}.commits (writer, number, at)
SELECT %s, %s, now() WHERE pg_current_xact_id_if_assigned() IS NOT NULL
ON CONFLICT (writer) DO UPDATE SET number = excluded.number, at = excluded.at RETURNING number
"""
"""Returns no row in a transaction that wrote nothing."""
FIND_COMMIT = f"""
INSERT INTO {SCHEMA}.commits (writer, number, at) VALUES (%s, 0, now())
ON CONFLICT (writer) DO UPDATE SET at = excluded.at RETURNING number
"""
"""Waits until a transaction of this writer has ended. A query would not see one that has just inserted the row."""
MAX_GROUP_SECONDS = 0.25
"""How long a transaction of several writes takes up more of them: other processes wait for its locks."""
QUEUED = "queued_jobs"
"""Marks a transaction that queued jobs."""


class _BinaryCursor(psycopg.Cursor[Any]):
    """Fetches results in binary form: vectors would be twice as large as text."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.format = Format.BINARY


class _WholeNumber(NumericBinaryLoader):
    """Loads sums of integers as int; PostgreSQL returns them as decimals."""

    def load(self, data: Any) -> Any:
        return int(super().load(data))


class _Retries:
    """The retries of one transaction: for RECOVER_SECONDS, with growing pauses."""

    def __init__(self) -> None:
        self._until = time.monotonic() + RECOVER_SECONDS
        self._pause = MIN_PAUSE_SECONDS
        self._key_conflicts = 0

    def pause(self, error: BaseException) -> bool:
        """Wait before the next attempt. Return False if attempts are used up."""
        self._key_conflicts += is_key_conflict(error)
        if self._key_conflicts > MAX_KEY_CONFLICTS or find_remedy(error) == "none" or time.monotonic() >= self._until:
            return False
        time.sleep(self._pause * random.uniform(0.5, 1.5))
        self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS)
        return True


class _Writer(threading.local):
    """The name of a thread in the table `commits`, and the number of its last transaction."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self._last = 0

    def count_commit(self) -> int:
        """Return the number of the next transaction."""
        self._last += 1
        return self._last


class PostgresDatabase:
    """An open PostgreSQL database, shared with other processes."""

    def __init__(
        self, address: DatabaseAddress, *, read_seconds: float | None = None, prepare: Callable[[Tx], bool]
    ) -> None:
        """Connect, then run `prepare` repeatedly, each time in a new transaction, until it returns False."""
        self.address = address
        self._read_seconds = read_seconds
        self._begin_read = READ
        if read_seconds is not None:
            self._begin_read += f"; SET LOCAL statement_timeout = {int(read_seconds * 1000)}"
        self._engine = create_postgres_engine(address, READERS + WRITERS)
        self._readers = Threads(READERS, "postgres reader")
        self._writers = Threads(WRITERS, "postgres writer")
        self._writer = _Writer()
        self._groups = CallGroups(self._writers, self._write_together)
        self._guard = threading.Lock()
        """Guards the next two attributes."""
        self._tried_again: Counter[str] = Counter()
        self._is_out = False
        self._watchers: list[Callable[[], object]] = []
        self._closed = threading.Event()
        try:
            while self._prepare(prepare):
                continue
        except DATABASE_ERRORS as error:
            self._engine.dispose()
            raise translate(error, str(address)) from None  # the driver's own text may quote the address
        except BaseException:
            self._engine.dispose()
            raise

    @property
    def folder(self) -> Path | None:
        return None

    def free_bytes(self) -> int | None:
        return None

    def is_replaced(self) -> bool:
        return False

    async def empty_log(self) -> None:
        """Do nothing: PostgreSQL manages its log itself."""

    async def read(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on a consistent snapshot. It may be started more than once."""
        reading, who = TimedRead(self._read_seconds), scheduled_client.get()
        try:
            return await self._readers.run(partial(self._read, run, reading), 0 if who is None else who.rank)
        finally:
            reading.stop()
            if who is not None:
                who.took(reading.spent)

    async def write(self, run: Callable[[Tx], T], group: str | None = None) -> T:
        """Run `run` in a transaction and commit it; run it again after a conflict. Heavy clients share none."""
        who = scheduled_client.get()
        if group is not None and (who is None or who.rank == 0):
            return await self._groups.run(group, run)

        def counted() -> T:
            begun = time.thread_time()
            try:
                return self._write(run)
            finally:
                if who is not None:
                    who.took(time.thread_time() - begun)

        return await self._writers.run(counted, 0 if who is None else who.rank)

    def _write_together(self, calls: Sequence[GroupedCall]) -> int:
        """Run several writes in one transaction, so that locks are taken and the commit is written once. Return how
        many it took. If one of them fails, each is run alone."""
        if len(calls) > 1:
            try:
                results = self._write(partial(_run_some, calls))
            except (StoreBusyError, StoreUnreachableError) as error:
                for call in calls:
                    call.answer.error = error
                return len(calls)
            except Exception as error:  # noqa: BLE001 - rolled back; whose error it is shows when each is run alone
                log.debug("memory server: %d writes are run apart: %s", len(calls), type(error).__name__)
            else:
                for call, result in zip(calls, results, strict=False):
                    call.answer.result = result
                return len(results)
        for call in calls:
            call.answer.work_out(partial(self._write, call.run_with))
        return len(calls)

    def measure(self) -> DatabaseLoad | None:
        pool: Any = self._engine.pool
        tries = self._tried_again
        return DatabaseLoad(pool.checkedout(), READERS + WRITERS, tries["again"], tries["reconnect"])

    def watch_jobs(self, wake: Callable[[], object]) -> None:
        """Call `wake`, in a thread of this database, whenever any process queues work."""
        self._watchers.append(wake)
        if len(self._watchers) == 1:
            threading.Thread(target=self._listen, name="postgres listener", daemon=True).start()

    async def index_vectors(self, scope: VectorScope | None) -> None:
        from hermes.memory_server.db.postgres_neighbours import index_scope

        try:
            await index_scope(self._plain_url(), scope)
        except DATABASE_ERRORS as error:
            raise translate(error, str(self.address)) from None  # the driver's own text may quote the address

    async def close(self) -> None:
        self._closed.set()
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        self._readers.end()
        self._writers.end()
        self._engine.dispose()

    def _prepare(self, prepare: Callable[[Tx], bool]) -> bool:
        """Run one step of the preparation. While others hold its locks, retry instead of queueing, so that nobody waits
        behind it. Retry also after a lost connection and while the server starts, but not where nobody answers: the
        address may be wrong."""
        end, retries, is_reached = time.monotonic() + PREPARE_SECONDS, _Retries(), False
        while True:
            try:
                with self.transaction(WRITE) as tx:
                    is_reached = True
                    has_more = prepare(tx)
                    driver_of(tx).execute("COMMIT")
                    return has_more
            except DATABASE_ERRORS as error:
                if is_locked(error) and time.monotonic() < end:
                    time.sleep(MAX_PAUSE_SECONDS)
                elif not (is_reached or is_answer(error)) or not retries.pause(error):
                    raise

    def _read(self, run: Callable[[Tx], T], reading: TimedRead) -> T:
        retries = _Retries()
        while True:
            try:
                with self.transaction(self._begin_read) as tx:
                    return reading.run(lambda: run(tx), LANE, None)
            except DATABASE_ERRORS as error:
                if (refusal := reading.refusal()) is None:
                    self._recover(error, retries)
                elif find_remedy(error) == "none":
                    raise refusal from None
                else:
                    raise translate(error, str(self.address)) from error

    def _write(self, run: Callable[[Tx], T]) -> T:
        retries = _Retries()
        while True:
            number = 0
            try:
                with self.transaction(WRITE) as tx:
                    result = run(tx)
                    driver = driver_of(tx)
                    is_queued = bool(tx.info.pop(QUEUED, False))
                    writer, following = self._writer.name, self._writer.count_commit()
                    if driver.execute(NUMBER_COMMIT, [writer, following]).fetchone() is not None:
                        number = following
                    if driver.execute("COMMIT").statusmessage != "COMMIT":
                        raise StoreBusyError(f"a transaction on {self.address} was rolled back")
                    if is_queued:
                        driver.execute(f"NOTIFY {CHANNEL}")
                return result
            except DATABASE_ERRORS as error:
                if number and self._has_committed(number, error):
                    return result
                self._recover(error, retries)

    def _has_committed(self, number: int, error: BaseException) -> bool:
        """Return True if this thread's transaction was committed although its COMMIT was not answered."""
        if find_remedy(error) != "reconnect":
            return False
        retries = _Retries()
        while True:
            try:
                with self.transaction(WRITE) as tx:
                    found = driver_of(tx).execute(FIND_COMMIT, [self._writer.name]).fetchone()
                return found is not None and found[0] == number
            except DATABASE_ERRORS as again:
                if find_remedy(again) != "reconnect":
                    message = f"it is unknown whether a transaction was committed: {self.address} does not answer that"
                    raise StoreUnreachableError(message) from again
                self._recover(again, retries)

    def _recover(self, error: BaseException, retries: _Retries) -> None:
        """Wait before the next attempt, or raise the error for the user. An outage is logged once."""
        remedy = find_remedy(error)
        with self._guard:
            self._tried_again[remedy] += 1
            is_first = remedy == "reconnect" and not self._is_out
            self._is_out = self._is_out or is_first
        if is_first:
            log.warning("memory server: %s; trying again", translate(error, str(self.address)).message)
        if self._closed.is_set() or not retries.pause(error):
            raise translate(error, str(self.address)) from error

    @contextmanager
    def transaction(self, begin: str) -> Iterator[Tx]:
        """Yield a connection with a transaction, which is rolled back unless the block commits it."""
        tx = self._engine.connect()
        try:
            psycopg.Cursor(driver_of(tx)).execute(begin)
            if self._is_out:
                with self._guard:
                    was_out, self._is_out = self._is_out, False
                if was_out:
                    log.warning("memory server: %s is reached again", self.address)
            yield tx
        finally:
            self._give_back(tx)

    def _give_back(self, tx: Tx) -> None:
        """End an open transaction; discard a broken connection."""
        try:
            if tx.invalidated:  # SQLAlchemy noticed the loss first and dropped the connection
                return
            tx.info.pop(QUEUED, None)
            driver = driver_of(tx)
            if driver.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                driver.execute("ROLLBACK")
        except DATABASE_ERRORS:
            with suppress(*DATABASE_ERRORS):
                tx.invalidate()
        finally:
            tx.close()

    def _plain_url(self) -> str:
        """Return the address as the driver accepts it."""
        return self.address.url.set(drivername="postgresql").render_as_string(hide_password=False)

    def _listen(self) -> None:
        """Wake the watchers on notifications until closed. Without a connection, workers find work by polling."""
        url = self._plain_url()
        while not self._closed.is_set():
            try:
                with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    while not self._closed.is_set():
                        for _ in connection.notifies(timeout=LISTEN_SECONDS, stop_after=1):
                            for wake in self._watchers:
                                wake()
            except psycopg.Error:
                self._closed.wait(MAX_PAUSE_SECONDS)  # the next transaction reports the outage
            except RuntimeError:  # the worker's event loop is closed
                return


def _run_some(calls: Sequence[GroupedCall], tx: Tx) -> list[Any]:
    """Return the results of the first of these calls, of as many as MAX_GROUP_SECONDS allow."""
    end = time.monotonic() + MAX_GROUP_SECONDS
    results = [calls[0].run_with(tx)]
    while len(results) < len(calls) and time.monotonic() < end:
        results.append(calls[len(results)].run_with(tx))
    return results


def create_postgres_engine(address: DatabaseAddress, connections: int) -> Engine:
    """Return an engine with a pool of at most `connections`; statements begin and end its transactions."""
    engine = create_engine(
        address.url,
        isolation_level="AUTOCOMMIT",
        pool_size=connections,
        max_overflow=0,
        pool_use_lifo=True,
        use_native_hstore=False,
        connect_args={"application_name": "hermes-memory", "connect_timeout": CONNECT_SECONDS},
    )
    event.listen(engine, "connect", _adapt)
    return engine


def mark_queued(tx: Tx) -> None:
    """Notify the workers of other processes when this transaction commits."""
    tx.info[QUEUED] = True


class _Text(StrDumperUnknown):
    """Sends texts. PostgreSQL stores no NUL, so a search for one finds nothing."""

    def dump(self, obj: str) -> Any:
        return super().dump(obj.replace("\0", "\ufffd") if "\0" in obj else obj)


def _adapt(connection: Any, _record: object) -> None:
    connection.cursor_factory = _BinaryCursor
    connection.adapters.register_dumper(str, _Text)
    connection.adapters.register_loader("numeric", _WholeNumber)


def driver_of(tx: Tx) -> psycopg.Connection[Any]:
    raw: Any = tx.connection.dbapi_connection
    connection: psycopg.Connection[Any] = raw
    return connection
