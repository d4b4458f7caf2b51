"""Files that cannot be opened or written: the error names the reason, and the file does not change."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.db import queue
from hermes.db.engine import Migration, migrate
from hermes.errors import StoreDamagedError, StoreNewerError, StoreReadOnlyError
from hermes.store.schema import MESSAGES, MIGRATIONS, SESSIONS
from hermes.store.store import Store
from hermes.types import Draft
from tests.db.processes import await_end, finish, hear, say, start
from tests.scale import scale
from tests.small_disk import small_disk


async def open_store(path: Path) -> Store:
    return await Store.open(path, clock=SystemClock(), lock_timeout=5.0)


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("content", [b"just some text, not a database\n" * 100, b"\0" * 4096, b"short"])
async def test_file_that_is_no_database_is_refused_untouched(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.db").write_bytes(content)
    with pytest.raises(StoreDamagedError):
        await open_store(tmp_path / "state.db")
    assert bytes_in(tmp_path) == {"state.db": content}


async def test_file_with_broken_pages_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await (await open_store(path)).close()
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * 4000 + content[4100:])
    broken = bytes_in(tmp_path)
    with pytest.raises(StoreDamagedError):
        await open_store(path)
    assert bytes_in(tmp_path) == broken


def make_foreign(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


async def test_database_of_another_program_is_refused_untouched(tmp_path: Path) -> None:
    make_foreign(tmp_path / "state.db", "CREATE TABLE messages (subject TEXT)")
    before = bytes_in(tmp_path)
    with pytest.raises(StoreDamagedError, match="messages has no column"):
        await open_store(tmp_path / "state.db")
    assert bytes_in(tmp_path) == before


async def test_store_of_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await (await open_store(path)).close()
    make_foreign(path, "INSERT INTO hermes_migrations VALUES (999, 0)", "PRAGMA journal_mode = DELETE")
    before = bytes_in(tmp_path)
    with pytest.raises(StoreNewerError, match="999"):
        await open_store(path)
    assert bytes_in(tmp_path) == before


@pytest.mark.processes
@pytest.mark.parametrize("case", ["nothing may be written", "the folder may not be written", "there is no file"])
def test_read_only_file_is_reported_and_untouched(case: str) -> None:
    with tempfile.TemporaryDirectory() as name:  # not tmp_path: its parents are closed to other users
        folder = Path(name)
        output = finish(start("tests.store.unprivileged", folder / "state.db", case))
    assert output.splitlines() == [StoreReadOnlyError.__name__, "unchanged"]


@pytest.mark.processes
@pytest.mark.contract("P1")
def test_full_disk_is_reported_loses_nothing_and_recovers(tmp_path: Path) -> None:
    assert finish(start("tests.store.cramped", tmp_path / "state.db", "limit")).splitlines()[-1] == "ok"


@pytest.mark.processes
@pytest.mark.contract("P1")
def test_full_file_system_is_reported_loses_nothing_and_recovers(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", megabytes=1):
        output = finish(start("tests.store.cramped", tmp_path / "disk" / "state.db", "ballast"))
    assert output.splitlines()[-1] == "ok"


@pytest.mark.processes
@pytest.mark.stress
@pytest.mark.contract("1.6")
def test_processes_that_make_the_same_file_at_the_same_moment_all_succeed(tmp_path: Path) -> None:
    for number in range(scale(3, 40)):
        makers = [start("tests.store.doomed", tmp_path / f"{number}.db", f"s{maker}") for maker in range(3)]
        for maker in makers:
            assert hear(maker) == "ready"
        for maker in makers:
            say(maker, "go")
        for maker in makers:
            assert hear(maker) == "0"
        for maker in makers:
            maker.kill()
            assert await_end(maker)[1] == ""


def schema_of(tx: sqlite3.Connection) -> list[tuple[str, str, str]]:
    return sorted((row[0], row[1], row[2] or "") for row in tx.execute("SELECT type, name, sql FROM sqlite_master"))


@pytest.mark.parametrize("applied", range(len(MIGRATIONS) + 1))
async def test_migrating_from_any_version_gives_the_schema_of_a_new_file(tmp_path: Path, applied: int) -> None:
    async with await open_store(tmp_path / "new.db") as store:
        fresh = await store.read(schema_of)
    with closing(sqlite3.connect(tmp_path / "old.db", isolation_level=None)) as old:
        old.execute(SESSIONS)
        old.execute(MESSAGES)
        if applied:
            migrate(old, MIGRATIONS[:applied], now=0.0)
    async with await open_store(tmp_path / "old.db") as store:
        assert await store.read(schema_of) == fresh


async def test_items_of_an_earlier_version_count_as_never_tried(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "old.db", isolation_level=None)) as old:
        for statement in (SESSIONS, MESSAGES):
            old.execute(statement)
        migrate(old, MIGRATIONS[:4], now=0.0)
        old.execute("INSERT INTO hermes_lanes VALUES ('work', 'a', 1.0)")
        old.execute(
            "INSERT INTO hermes_queue (queue, lane, key, payload, not_before, created_at) "
            "VALUES ('work', 'a', 'one', '{}', 1.0, 1.0)"
        )
    async with await open_store(tmp_path / "old.db") as store:
        claim = await store.write(lambda tx: queue.claim(tx, "work", "me", ttl=9.0, now=2.0))
    assert claim is not None
    assert [(item.key, item.tried_at) for item in claim.items] == [("one", None)]


def test_migrations_are_numbered_without_gaps() -> None:
    assert [migration.version for migration in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


def test_each_migration_is_applied_once(tmp_path: Path) -> None:
    first = Migration(1, ("CREATE TABLE a (x)", "INSERT INTO a VALUES (1)"))
    second = Migration(2, ("INSERT INTO a VALUES (2)",))
    with closing(sqlite3.connect(tmp_path / "m.db", isolation_level=None)) as db:
        for steps in ((first,), (first,), (first, second), (first, second)):
            migrate(db, steps, now=0.0)
        assert [row[0] for row in db.execute("SELECT x FROM a")] == [1, 2]


async def test_opening_again_changes_no_row(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with await open_store(path) as store:
        session = await store.create_session("test")
        await store.append(session.id, Draft("user", "hello"))
    before = bytes_in(tmp_path)
    await (await open_store(path)).close()
    assert bytes_in(tmp_path) == before
