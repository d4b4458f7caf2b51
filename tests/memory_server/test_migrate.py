"""Moving a memory between a folder and PostgreSQL: wherever it is interrupted, no row is lost, mixed or duplicated."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import select

from hermes.clock import SystemClock
from hermes.errors import StoreMovedError, TransferError, UsageError
from hermes.memory_server.api.faults import MOVED
from hermes.memory_server.db import moving
from hermes.memory_server.db.address import VARIABLE, DatabaseAddress
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.move_places import FolderPlace, MovePlace, PostgresPlace
from hermes.memory_server.db.schema import FILE, MOVING_FILE, open_database, open_postgres
from hermes.memory_server.db.tables import meta
from hermes.memory_server.engine.messages import append_messages
from hermes.memory_server.engine.truth import find_tombstone_time
from hermes.memory_server.engine.worker import JobWorker
from tests.memory_server.floor import EMBEDDER, draft
from tests.memory_server.inside import serving
from tests.memory_server.move_ends import TEXTS, Ends, closing, fill, quietly, read_all
from tests.memory_server.serving import ROOT
from tests.postgres import Postgres

pytestmark = pytest.mark.processes
AT = 1_700_000_000_000_000
KINDS = ("folder", "postgres")
QUESTIONS = ["Where do I live?", "boat", "日本", "cafe"]


@pytest.fixture(params=KINDS)
def ends(request: pytest.FixtureRequest, tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> Ends:
    """Return the ends of a move, with rows of every kind at the source; the parameter is the kind of the source."""
    monkeypatch.setattr(moving, "CHUNK_ROWS", 5)
    made = Ends(request.param, tmp_path / "memory", postgres)
    asyncio.run(fill(made.open_source()))
    return made


async def ask(opened: Database) -> list[Any]:
    """Return what searches find, and what was deleted about whom."""
    buried = await opened.read(lambda tx: find_tombstone_time(tx, 1, "ann: I own a boat."))
    async with serving(opened) as client:
        found = [await client.post("/v3/workspaces/w/search", json={"query": asked}) for asked in QUESTIONS]
        return [buried, *([item["content"] for item in answer.json()] for answer in found)]


@pytest.mark.contract("9.7")
def test_moved_memory_has_every_row_and_gives_the_same_answers(ends: Ends) -> None:
    before = asyncio.run(ask(ends.open_source()))
    steps: list[tuple[str, str]] = []
    report = ends.move(lambda step, table, _done, _total: steps.append((step, table)))
    with closing(*ends.pair()) as (source, target):
        assert read_all(source) == read_all(target)
        rows = read_all(target)
    assert asyncio.run(ask(ends.open_target())) == before
    assert before[0] is not None
    assert all(before[1:])
    assert report.rows == {name: len(own) for name, own in rows.items()}
    assert {("copied", "messages"), ("compared", "messages")} <= set(steps)


def test_moved_memory_gives_no_id_again_that_was_deleted(ends: Ends) -> None:
    with closing(*ends.pair()) as (source, _):
        newest = max(row[0] for row in read_all(source)["messages"])
        with source.memory() as tx:
            given = source.last_ids(tx)["messages"]
    ends.move()

    async def say(opened: Database) -> int:
        made = await opened.write(lambda tx: append_messages(tx, "w", "one", [draft("later", "ann")], AT))
        await opened.close()
        return made[0].id

    assert asyncio.run(say(ends.open_target())) == given + 1 > newest + 1


def test_moved_memory_comes_back_row_by_row(ends: Ends, tmp_path: Path, postgres: Postgres) -> None:
    ends.move()
    back = FolderPlace(tmp_path / "back") if ends.kind == "folder" else PostgresPlace(
        DatabaseAddress.parse(postgres.create(), "test")
    )  # fmt: skip
    source, middle = ends.pair()
    with closing(source, middle, back):
        moving.move(middle, back, quietly)
        assert read_all(back) == read_all(source)
        with back.memory() as tx, source.memory() as old:
            own = ("format", "embedder", "dimension")
            queries = [select(meta.c.value).where(meta.c.name.in_(own)).order_by(meta.c.name) for _ in range(2)]
            assert tx.execute(queries[0]).all() == old.execute(queries[1]).all()


class Killed(BaseException):
    """The simulated end of the process."""


def dying(place: MovePlace, steps: Iterator[bool]) -> MovePlace:
    """Make a place end the process before, within or after one of its steps."""

    def watched(name: str) -> Callable[..., Any]:
        inner = getattr(place, name)

        @contextmanager
        def transaction(**given: Any) -> Iterator[Any]:
            step()
            with inner(**given) as tx:
                yield tx
                step()
            step()

        def call() -> None:
            step()
            inner()
            step()

        return call if name == "publish" else transaction

    def step() -> None:
        if next(steps):
            raise Killed

    for name in ("memory", "filling", "publish"):
        setattr(place, name, watched(name))
    return place


@pytest.mark.contract("9.7")
def test_move_that_is_killed_at_every_step_goes_on_where_it_was(ends: Ends) -> None:
    kills = 0
    while True:
        steps = iter([*[False] * (3 + 11 * kills), True, *[False] * 10_000])
        with closing(*ends.pair()) as (source, target):
            try:
                moving.move(dying(source, steps), dying(target, steps), quietly)
                break
            except Killed:
                kills += 1
    with closing(*ends.pair()) as (source, target):
        assert read_all(source) == read_all(target)
        with target.memory() as tx:
            assert tx.execute(select(meta.c.name).where(meta.c.name.startswith("move:"))).all() == []
    assert kills > 8


@contextmanager
def migrating(*arguments: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "hermes", "memory", "migrate", *arguments]
    given = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore", **(env or {})}
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.contract("9.7")
def test_command_that_is_killed_goes_on_and_says_what_to_do_next(tmp_path: Path, postgres: Postgres) -> None:
    folder, url = tmp_path / "memory", postgres.create()

    def say(tx: Tx) -> None:
        for number in range(30):
            append_messages(
                tx, "w", f"s{number}", [draft(f"I saw house {number}, {n}.", "ann") for n in range(100)], AT
            )

    async def fill_folder() -> None:
        opened = open_database(folder)
        await opened.write(say)
        await opened.close()

    asyncio.run(fill_folder())

    def copied() -> int:
        with psycopg.connect(url) as connection, suppress(psycopg.errors.UndefinedTable):
            return int(connection.execute("SELECT count(*) FROM hermes_memory_moving.messages").fetchone()[0])  # type: ignore[index]
        return 0

    env = {"HERMES_HOME": str(tmp_path), VARIABLE: url}
    for least in (1, 2000):
        with migrating(str(folder), VARIABLE, env=env) as process:
            while copied() < least and process.poll() is None:
                time.sleep(0.005)
            os.kill(process.pid, signal.SIGKILL)
    assert copied() >= 2000
    with migrating(str(folder), VARIABLE, "--json", env=env) as process:
        out, err = process.communicate(timeout=200)
    report = json.loads(out)
    assert (process.returncode, report["state"], report["rows"]["messages"]) == (0, "moved", 3000), err
    assert any("hermes memory serve" in step for step in report["next"])
    with closing(FolderPlace(folder), PostgresPlace(DatabaseAddress.parse(url, "test"))) as (source, target):
        assert read_all(source) == read_all(target)


def cut_off(ends: Ends, at: str) -> None:
    """Start a move, and interrupt it at the first step of a kind."""

    def tell(step: str, table: str, _done: int, _total: int) -> None:
        if (step, table) == (at, "messages"):
            raise Killed

    with pytest.raises(Killed):
        ends.move(tell)


def change(ends: Ends, statement: str, *, where: str) -> None:
    """Change rows during a move: at the source, or in the partly filled target."""
    if (where == "source") == (ends.kind == "folder"):
        with sqlite3.connect(ends.folder / (FILE if where == "source" else MOVING_FILE)) as connection:
            for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {trigger}")
            connection.execute(statement)
        return
    schema = "hermes_memory" if where == "source" else "hermes_memory_moving"
    with psycopg.connect(ends.url, options=f"-csearch_path={schema}") as database:
        database.execute("SET session_replication_role = replica")
        database.execute(statement.encode())


@pytest.mark.contract("9.7")
@pytest.mark.parametrize("where", ["source", "target"])
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE messages SET content = 'forged' WHERE seq = 4 AND session_id = 1", "is not the same"),
        ("DELETE FROM message_vectors WHERE message_id = 2", "is missing"),
        ("UPDATE peers SET name = 'eve'", "is not the same"),
    ],
)
def test_row_that_is_changed_behind_a_move_is_named(ends: Ends, where: str, statement: str, told: str) -> None:
    cut_off(ends, "compared")
    with suppress(sqlite3.OperationalError):
        change(ends, statement, where=where)
    with pytest.raises(TransferError, match=told) as refused:
        ends.move()
    assert statement.split()[1 if statement.startswith("UPDATE") else 2] in refused.value.message
    with closing(*ends.pair()) as (_, target):
        assert not target.exists()


@pytest.mark.contract("9.7")
def test_target_that_holds_something_is_refused_and_the_source_goes_on(
    ends: Ends, tmp_path: Path, postgres: Postgres
) -> None:
    asyncio.run(fill(ends.open_target()))
    with closing(*ends.pair()) as (_, target):
        before = read_all(target)
        with pytest.raises(TransferError, match="already contains a memory"):
            ends.move()
        assert read_all(target) == before
    asyncio.run(write(ends.open_source()))


async def write(opened: Database) -> None:
    """Write to a database; raise the error of a refusal."""
    try:
        await opened.write(lambda tx: append_messages(tx, "w", "one", [draft("more", "ann")], AT))
    finally:
        await opened.close()


def test_database_of_honcho_is_refused_as_a_target(tmp_path: Path, postgres: Postgres) -> None:
    ends = Ends("folder", tmp_path / "memory", postgres)
    asyncio.run(fill(ends.open_source()))
    with psycopg.connect(ends.url, autocommit=True) as honcho:
        for table in ("workspaces", "peers", "active_queue_sessions"):
            honcho.execute(f"CREATE TABLE {table} (id text)".encode())
        with pytest.raises(Exception, match="Honcho's own server"):
            ends.move()
        query = "SELECT count(*) FROM pg_namespace WHERE nspname ~ 'hermes'"
        assert honcho.execute(query).fetchone() == (0,)
    asyncio.run(write(ends.open_source()))


def test_remainder_of_another_move_is_refused_and_named(ends: Ends, tmp_path: Path, postgres: Postgres) -> None:
    cut_off(ends, "copied")
    other = FolderPlace(tmp_path / "other") if ends.kind == "folder" else PostgresPlace(
        DatabaseAddress.parse(postgres.create(), "test")
    )  # fmt: skip
    opened = open_database(tmp_path / "other") if isinstance(other, FolderPlace) else open_postgres(other.address)
    asyncio.run(fill(opened))
    source, target = ends.pair()
    with closing(source, target, other):
        with pytest.raises(TransferError, match=f"unfinished copy of a move from {source}"):
            moving.move(other, target, quietly)
        third = PostgresPlace(DatabaseAddress.parse(postgres.create(), "test"))
        with closing(third), pytest.raises(TransferError, match=f"is being moved to {target}"):
            moving.move(source, third, quietly)
    asyncio.run(write(opened_again(other)))
    assert ends.move().state == "moved"


def opened_again(place: MovePlace) -> Database:
    if isinstance(place, PostgresPlace):
        return open_postgres(place.address)
    assert isinstance(place, FolderPlace)
    return open_database(Path(str(place).removeprefix("the folder ")))


async def say(client: httpx.AsyncClient) -> httpx.Response:
    body = {"messages": [{"content": "meanwhile", "peer_id": "ann"}]}
    return await client.post("/v3/workspaces/w/sessions/one/messages", json=body)


@pytest.mark.contract("9.7")
async def test_source_refuses_writes_while_it_is_served_and_reads_go_on(ends: Ends) -> None:
    async with serving(ends.open_source()) as client:
        assert (await say(client)).status_code == 201
        await asyncio.to_thread(cut_off, ends, "copied")
        refused = await say(client)
        assert (refused.status_code, refused.json()["detail"]) == (503, MOVED)
        assert refused.headers["Retry-After"] == "1"
        found = await client.post("/v3/workspaces/w/search", json={"query": "boat"})
        assert found.json()[0]["content"] == "I own a boat."
        assert (await client.get("/health")).json()["status"] == "moved"
        await asyncio.to_thread(ends.undo)
        assert (await say(client)).status_code == 201
    assert (await asyncio.to_thread(ends.move)).state == "moved"
    with pytest.raises(StoreMovedError, match="was moved to"):
        await write(ends.open_source())
    await write(ends.open_target())


@pytest.mark.contract("9.7")
async def test_every_write_that_was_acknowledged_during_a_move_is_in_the_target(ends: Ends) -> None:
    acknowledged = asyncio.Semaphore(0)

    async def write_until_refused(client: httpx.AsyncClient) -> int:
        for count in range(100_000):
            if (answer := await say(client)).status_code == 503:
                return count
            assert answer.status_code == 201, answer.text
            acknowledged.release()
        raise AssertionError("never refused")

    async with serving(ends.open_source()) as client:
        writers = [asyncio.create_task(write_until_refused(client)) for _ in range(6)]
        for _ in range(12):
            await acknowledged.acquire()
        report = await asyncio.to_thread(ends.move)
        written = sum(await asyncio.gather(*writers))
    assert report.rows["messages"] == 2 * len(TEXTS) + written


def test_target_is_not_served_before_it_is_whole(ends: Ends) -> None:
    cut_off(ends, "compared")
    with pytest.raises(StoreMovedError, match="is being filled"):
        ends.open_target()
    ends.undo()
    asyncio.run(write(ends.open_source()))
    assert ends.move().is_new
    assert not ends.move().is_new
    assert ends.undo().state == "undone"
    asyncio.run(write(ends.open_source()))


def test_worker_of_a_moved_memory_says_so_once(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(write(ends.open_source()))  # there is something to learn
    ends.move()

    async def work() -> None:
        opened = ends.open_source()
        worker = JobWorker(opened, SystemClock(), EMBEDDER)
        running = asyncio.create_task(worker.run())
        looks: list[float] = []
        while len(looks) < 4:  # it looks for work again and again
            if worker._turned not in looks:
                looks.append(worker._turned)
            worker.wake()
            await asyncio.to_thread(time.sleep, 0.01)
        worker.stop()
        await running
        await opened.close()

    asyncio.run(work())
    assert len(caplog.messages) == 1
    assert "was moved to" in caplog.messages[0]


@pytest.mark.parametrize(
    ("source", "target", "told"),
    [
        ("postgresql://me:s3cret@127.0.0.1:1/m", "there", "FROM holds a password"),
        ("here", "postgresql://me:s3cret@127.0.0.1:1/m", "TO holds a password"),
        ("here", VARIABLE, "TO is HERMES_MEMORY_DATABASE, which is empty"),
        ("here", "mysql://host/db", "TO is not a URL of a PostgreSQL database"),
        ("here", "there", "holds no memory"),
    ],
)
def test_ends_that_cannot_be_are_refused_in_a_line(tmp_path: Path, source: str, target: str, told: str) -> None:
    given = [str(tmp_path / end) if end.isalpha() and end != VARIABLE else end for end in (source, target)]
    with migrating(*given, env={"HERMES_HOME": str(tmp_path), VARIABLE: ""}) as process:
        out, err = process.communicate(timeout=100)
    assert told in err
    assert "s3cret" not in out + err
    assert process.returncode in (UsageError.exit_code, TransferError.exit_code)
    assert not (tmp_path / "here").exists()
