"""One writer, a few readers: shared commits, cancellation, snapshots, closing. Every test runs on both databases."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hermes.errors import StoreBusyError, StoreError, StoreFullError, StoreReadOnlyError
from hermes.sqlite.scheduling import ScheduledClient, scheduled_client
from tests.sqlite.databases import OPEN, Database, Tx, run

Open = Callable[[Path, float], Database]


@pytest.fixture(params=[*OPEN])
def open_(request: pytest.FixtureRequest) -> Open:
    return OPEN[request.param]


@pytest.fixture
async def db(tmp_path: Path, open_: Open) -> AsyncIterator[Database]:
    database = open_(tmp_path / "e.db", 10.0)
    await database.write(running("CREATE TABLE t (v TEXT UNIQUE)"))
    yield database
    await database.close()


def running(statement: str) -> Callable[[Tx], list[object]]:
    return lambda tx: [row[0] for row in run(tx, statement)]


def put(value: str) -> Callable[[Tx], str]:
    def insert(tx: Tx) -> str:
        run(tx, "INSERT INTO t VALUES (?)", value)
        return value

    return insert


def values(tx: Tx) -> list[object]:
    return running("SELECT v FROM t ORDER BY rowid")(tx)


def values_for_others(path: Path) -> list[str]:
    """Return the committed rows, as another process sees them."""
    with closing(sqlite3.connect(path)) as other:
        return [row[0] for row in other.execute("SELECT v FROM t ORDER BY rowid")]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Gate:
    """A write that keeps the writer busy, so that the writes behind it share the next commit."""

    def __init__(self, db: Database) -> None:
        self._entered, self._opened = threading.Event(), threading.Event()
        self.task = asyncio.create_task(db.write(self._run))

    def _run(self, _tx: Tx) -> None:
        self._entered.set()
        assert self._opened.wait(200)

    async def entered(self) -> None:
        assert await asyncio.to_thread(self._entered.wait, 60)

    async def open(self) -> None:
        self._opened.set()
        await self.task


async def queued(*writes: Callable[[Tx], object], db: Database) -> list[asyncio.Task[object]]:
    """Submit writes in order; each is accepted when this returns."""
    tasks = [asyncio.create_task(db.write(write)) for write in writes]
    await asyncio.sleep(0)
    return tasks


async def test_writes_that_wait_together_share_one_commit(db: Database) -> None:
    seen: list[tuple[list[object], list[str]]] = []
    gate = Gate(db)
    await gate.entered()
    tasks = await queued(put("a"), put("b"), lambda tx: seen.append((values(tx), values_for_others(db.path))), db=db)
    await gate.open()
    await asyncio.gather(*tasks)
    assert seen == [(["a", "b"], [])]
    assert values_for_others(db.path) == ["a", "b"]


@pytest.mark.contract("9.15")
async def test_writes_of_heavy_clients_come_after_all_others_one_by_one(db: Database) -> None:
    seen: list[list[str]] = []

    def look(_tx: Tx) -> None:
        seen.append(values_for_others(db.path))

    gate = Gate(db)
    await gate.entered()
    much = ScheduledClient()
    much.took(10.0)
    set_before = scheduled_client.set(much)
    tasks = await queued(put("much"), look, put("more"), db=db)
    scheduled_client.reset(set_before)
    tasks += await queued(put("little"), look, db=db)
    await gate.open()
    await asyncio.gather(*tasks)
    assert values_for_others(db.path) == ["little", "much", "more"]
    assert seen == [[], ["little", "much"]]


async def test_close_finishes_the_writes_of_heavy_clients(tmp_path: Path, open_: Open) -> None:
    db = open_(tmp_path / "e.db", 10.0)
    await db.write(running("CREATE TABLE t (v TEXT)"))
    much = ScheduledClient()
    much.took(10.0)
    scheduled_client.set(much)
    tasks = await queued(put("a"), put("b"), put("c"), db=db)
    await db.close()
    assert await asyncio.gather(*tasks) == values_for_others(db.path) == ["a", "b", "c"]


@pytest.mark.contract("P1")
async def test_failed_write_leaves_the_others_of_its_commit_intact(db: Database) -> None:
    def fail_late(tx: Tx) -> None:
        put("half")(tx)
        raise ValueError("changed my mind")

    gate = Gate(db)
    await gate.entered()
    tasks = await queued(put("a"), fail_late, put("a"), running("NONSENSE"), put("b"), db=db)
    await gate.open()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [str, ValueError, StoreError, StoreError, str]
    assert values_for_others(db.path) == ["a", "b"]


@pytest.mark.contract("P1")
async def test_write_is_committed_when_it_is_acknowledged(db: Database) -> None:
    for number in range(20):
        await db.write(put(str(number)))
        assert values_for_others(db.path)[-1] == str(number)


@pytest.mark.contract("P1")
async def test_commit_waits_for_the_disk_and_deleted_data_is_overwritten(db: Database) -> None:
    """Read from the writing connection, since settings differ per connection."""
    asked = {
        name: await db.look(running(f"PRAGMA {name}")) for name in ("journal_mode", "synchronous", "secure_delete")
    }
    assert asked == {"journal_mode": ["wal"], "synchronous": [2], "secure_delete": [1]}


async def test_write_cancelled_before_its_turn_never_runs(db: Database) -> None:
    gate = Gate(db)
    await gate.entered()
    (task,) = await queued(put("never"), db=db)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gate.open()
    await db.write(put("after"))
    assert await db.read(values) == ["after"]


async def test_write_cancelled_while_it_runs_is_committed(db: Database) -> None:
    gate = Gate(db)
    await gate.entered()
    entered, opened = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        put("kept")(tx)
        entered.set()
        assert opened.wait(200)

    (task,) = await queued(slow, db=db)
    await gate.open()
    assert await asyncio.to_thread(entered.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    opened.set()
    await db.write(put("after"))
    assert await db.read(values) == ["kept", "after"]


class OddError(BaseException):
    """A BaseException that is not an Exception."""


def raises(error: BaseException) -> Callable[[Tx], None]:
    def fail(_tx: Tx) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "seen"),
    [(StopIteration(), RuntimeError), (OddError(), OddError), (sqlite3.InterfaceError("odd"), StoreError)],
)
async def test_any_error_reaches_its_caller_and_the_engine_goes_on(
    db: Database, error: BaseException, seen: type[BaseException]
) -> None:
    for door in (db.write, db.look, db.read):
        with pytest.raises(seen):
            await asyncio.wait_for(door(raises(error)), 60)
    await db.write(put("a"))
    assert await db.read(values) == ["a"]


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
async def test_engine_survives_a_function_that_ends_its_transaction(db: Database, statement: str) -> None:
    with pytest.raises(StoreError):
        await db.write(running(statement))
    await db.write(put("a"))
    assert await db.read(values) == ["a"]


async def test_read_sees_one_snapshot(db: Database) -> None:
    await db.write(put("a"))

    def look_twice(tx: Tx) -> tuple[list[object], list[object]]:
        before = values(tx)
        with closing(sqlite3.connect(db.path, isolation_level=None)) as other:
            other.execute("INSERT INTO t VALUES ('b')")
        return before, values(tx)

    assert await db.read(look_twice) == (["a"], ["a"])
    assert await db.read(values) == ["a", "b"]


async def test_read_waits_for_a_lock_as_long_as_a_write(db: Database) -> None:
    assert await db.read(running("PRAGMA busy_timeout")) == [10_000]


async def test_read_cannot_write(db: Database) -> None:
    for _ in range(8):
        with pytest.raises(StoreReadOnlyError):
            await db.read(put("a"))
    assert await db.read(values) == []


async def test_write_to_a_full_disk_is_reported_and_works_again_with_space(db: Database) -> None:
    await db.write(running("PRAGMA max_page_count = 20"))
    with pytest.raises(StoreFullError):
        await db.write(put("x" * 1_000_000))
    await db.write(running("PRAGMA max_page_count = 2000"))
    await db.write(put("a"))
    assert await db.read(values) == ["a"]


@pytest.mark.contract("P1")
async def test_look_sees_committed_writes_and_leaves_none(db: Database) -> None:
    await db.write(put("a"))

    def meddle(tx: Tx) -> list[object]:
        put("b")(tx)
        return values(tx)

    assert await db.look(meddle) == ["a", "b"]
    assert await db.look(values) == values_for_others(db.path) == ["a"]


async def test_look_that_fails_tells_its_caller_alone(db: Database) -> None:
    gate = Gate(db)
    await gate.entered()
    looks = [asyncio.create_task(db.look(look)) for look in (put("a"), running("nonsense"), values)]
    (write,) = await queued(put("c"), db=db)
    await gate.open()
    found = await asyncio.gather(*looks, write, return_exceptions=True)
    assert isinstance(found[1], StoreError)
    assert [found[0], found[2], found[3]] == ["a", [], "c"]
    assert values_for_others(db.path) == ["c"]


async def test_look_waits_for_no_other_process_that_writes(db: Database) -> None:
    await db.write(put("a"))
    with closing(sqlite3.connect(db.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO t VALUES ('theirs')")
        assert await asyncio.wait_for(db.look(values), 60) == ["a"]
        other.execute("COMMIT")
    assert await db.look(values) == ["a", "theirs"]


async def test_only_commits_of_others_change_the_data_version_of_a_look(db: Database) -> None:
    version = running("PRAGMA data_version")
    before = await db.look(version)
    for number in range(2000):  # enough for several checkpoints
        await db.write(put(f"{number} {'x' * 4000}"))
    assert await db.look(version) == before
    with closing(sqlite3.connect(db.path)) as other, other:
        other.execute("DELETE FROM t")
    assert await db.look(version) != before


async def test_close_finishes_every_accepted_write(tmp_path: Path, open_: Open) -> None:
    db = open_(tmp_path / "e.db", 10.0)
    await db.write(running("CREATE TABLE t (v TEXT)"))
    tasks = await queued(*(put(str(number)) for number in range(300)), db=db)
    await asyncio.gather(db.close(), db.close())
    assert await asyncio.gather(*tasks) == values_for_others(db.path) == [str(number) for number in range(300)]
    await db.close()
    with pytest.raises(RuntimeError, match="closed"):
        await db.write(put("late"))
    with pytest.raises(RuntimeError, match="closed"):
        await db.read(values)
    assert names_in(tmp_path) == ["e.db"]


@pytest.mark.contract("1.6")
async def test_file_locked_for_too_long_is_reported_and_undamaged(tmp_path: Path, open_: Open) -> None:
    db = open_(tmp_path / "e.db", 0.2)
    await db.write(running("CREATE TABLE t (v TEXT)"))
    with closing(sqlite3.connect(db.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        began = asyncio.get_running_loop().time()
        with pytest.raises(StoreBusyError, match="locked by another process"):
            await db.write(put("a"))
        assert asyncio.get_running_loop().time() - began >= 0.2
        assert await db.read(values) == []
        other.execute("ROLLBACK")
    await db.write(put("b"))
    assert await db.read(values) == ["b"]
    assert await db.read(running("PRAGMA integrity_check")) == ["ok"]
    await db.close()


@pytest.mark.contract("1.6")
async def test_file_locked_for_a_while_is_waited_for(db: Database) -> None:
    with closing(sqlite3.connect(db.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        (task,) = await queued(put("a"), db=db)
        other.execute("ROLLBACK")
    await task
    assert await db.read(values) == ["a"]


@pytest.mark.contract("1.6")
async def test_opening_waits_for_a_locked_file_then_reports_it(tmp_path: Path, open_: Open) -> None:
    path = tmp_path / "e.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE t (v TEXT)")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreBusyError):
            open_(path, 0.1)
        opening = asyncio.create_task(asyncio.to_thread(open_, path, 30.0))
        assert (await asyncio.wait({opening}, timeout=0.2))[1] == {opening}, "it did not wait"
        other.execute("ROLLBACK")
    await (await opening).close()


async def test_emptied_log_has_no_deleted_text_and_nothing_else_is_lost(db: Database, tmp_path: Path) -> None:
    await db.write(put("abracadabra"))
    await db.write(put("stays"))
    await db.write(running("DELETE FROM t WHERE v = 'abracadabra'"))
    files = [tmp_path / "e.db", tmp_path / "e.db-wal"]
    assert any(b"abracadabra" in path.read_bytes() for path in files)
    await db.empty_log()
    assert not any(b"abracadabra" in path.read_bytes() for path in files)
    assert await db.read(values) == ["stays"]


async def test_log_is_not_emptied_while_an_older_snapshot_is_read(db: Database, tmp_path: Path) -> None:
    await db.write(put("before"))
    with closing(sqlite3.connect(tmp_path / "e.db", isolation_level=None)) as other:
        other.execute("BEGIN")
        assert other.execute("SELECT v FROM t").fetchall() == [("before",)]
        await db.write(put("after"))
        with pytest.raises(StoreBusyError):
            await db.empty_log()
        assert other.execute("SELECT v FROM t").fetchall() == [("before",)]
    await db.empty_log()
    assert await db.read(values) == ["before", "after"]


READING = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); print(*db.execute('SELECT v FROM t')); input()"


@contextmanager
def another_reader(path: Path) -> Iterator[None]:
    """A process that has read the file and keeps it open."""
    command = [sys.executable, "-c", READING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline()
        yield
        reader.communicate("\n")


@pytest.mark.processes
async def test_file_in_the_place_of_ours_can_be_used_while_another_process_reads_ours(
    db: Database, tmp_path: Path, open_: Open
) -> None:
    await db.write(put("ours"))
    with closing(sqlite3.connect(tmp_path / "restored.db")) as restored:
        restored.executescript("CREATE TABLE t (v TEXT UNIQUE); INSERT INTO t VALUES ('restored')")
    with another_reader(db.path):
        (tmp_path / "restored.db").replace(db.path)
        assert db.is_replaced()
        restored_db = open_(db.path, 10.0)
        await restored_db.write(put("more"))
        assert await restored_db.read(values) == ["restored", "more"]
        await restored_db.close()
