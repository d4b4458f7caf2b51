"""PostgreSQL only: ownership of the database, lost connections, and equality of answers with a file."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy import select, text

from hermes.errors import StoreError, StoreUnreachableError, UsageError
from hermes.memory_server.db import postgres as module
from hermes.memory_server.db import schema
from hermes.memory_server.db.address import VARIABLE, DatabaseAddress, find_address
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.postgres_schema import SCHEMA_LOCK_KEY
from hermes.memory_server.db.schema import FILE, HEAD, open_database, open_postgres
from hermes.memory_server.db.tables import messages, metadata
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.engine.job_kinds import WebhookJob
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.messages import append_messages
from hermes.memory_server.engine.truth import add_tombstones, find_tombstone_time
from hermes.memory_server.engine.workspaces import ensure_workspace
from tests.memory_server.floor import draft
from tests.memory_server.inside import serving
from tests.memory_server.serving import ROOT
from tests.postgres import Postgres, running_postgres

pytestmark = pytest.mark.processes
AT = 1_700_000_000_000_000
TEXTS = [
    "Ann's Café serves the best croissants, she says.", "running_fast ran runs runner's", "日本語のテキスト 東京タワー",
    "ÜBERGRÖSSE Straße naïve coöperate", "C++ and C# aren't F# or .NET", "x" * 3000, "it's 3.14 and 1,000 e-mails",
    "Ελληνικά ΟΔΟΣ οδός", "русский язык", "quoted 'single' and \"double\" \\ backslash", "don't DON’T dont", "",
    "ภาษาไทย ไม่มีช่องว่าง", "W1 S1 P1 are no scopes", "emoji 🎉 party", "I moved to Porto, and I like the river there.",
]  # fmt: skip
WORDS = [
    *(
        "cafe",
        "café",
        "ann",
        "s",
        "running",
        "run",
        "runner",
        "running_fast",
        "日本",
        "東京",
        "京*",
        "strasse",
        "straße",
    ),
    *("naive", "c", "f", "net", "x" * 3000, "3", "14", "οδος", "язык", "язы*", "single", "double", "don", "t", "dont"),
    *("ภา", "w1", "S1", "party", "🎉", "moved", "move", "porto", "serv*", "best", "nothing", "'", "\\", "quoted"),
]
QUESTIONS = ["Where did I move?", "croissants at the cafe", "running", "東京", "Straße", "single quotes", "zzz", "3.14"]


def address(url: str) -> DatabaseAddress:
    return DatabaseAddress.parse(url, "test")


def say_all(tx: Tx) -> None:
    drafts = [draft(text, f"p{number % 3}") for number, text in enumerate(TEXTS * 3)]
    for session in ("s", "t"):
        append_messages(tx, "w", session, drafts, AT)


@pytest.mark.contract("9.7")
async def test_words_find_in_postgres_what_they_find_in_a_file(postgres: Postgres, tmp_path: Path) -> None:
    file, database = open_database(tmp_path), open_postgres(address(postgres.create()))
    places = [SearchArea(1), SearchArea(1, (2,)), SearchArea(1, (1, 2), 2), SearchArea(2)]
    found = []
    for opened in (file, database):
        await opened.write(say_all)

        def find(tx: Tx) -> list[list[int]]:
            matches = [text_index(tx).within(tx, place) for place in places]
            asked = [*([word] for word in WORDS), ["best", "cafe"], ["moved", "river"]]
            return [match(words, 20, span).tolist() for match in matches for words in asked for span in (None, (3, 40))]

        found.append(await opened.read(find))
    await file.close()
    await database.close()
    assert found[0] == found[1]
    assert sum(map(bool, found[0])) > 100


@pytest.mark.contract("9.7")
async def test_searches_answer_in_postgres_as_in_a_file(postgres: Postgres, tmp_path: Path) -> None:
    answers = []
    for opened in (open_database(tmp_path), open_postgres(address(postgres.create()))):
        await opened.write(say_all)
        async with serving(opened) as client:
            asked = [await client.post("/v3/workspaces/w/search", json={"query": q, "limit": 10}) for q in QUESTIONS]
            answers.append([[message["content"] for message in answer.json()] for answer in asked])
    assert answers[0] == answers[1]
    assert any(answers[0])


@pytest.mark.contract("9.7")
async def test_database_of_honcho_is_refused_by_name_and_left_alone(postgres: Postgres) -> None:
    url = postgres.create()
    with psycopg.connect(url, autocommit=True) as honcho:
        for table in ("workspaces", "peers", "active_queue_sessions"):
            honcho.execute(f"CREATE TABLE {table} (id text)".encode())
        with pytest.raises(StoreError, match=r"holds the tables of Honcho's own server \(schema public"):
            open_postgres(address(url))
        left = honcho.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'hermes_memory'").fetchone()
    assert left == (0,)


async def test_schema_of_its_own_has_every_table_once_however_many_come_first(postgres: Postgres) -> None:
    url = postgres.create()
    opened = await asyncio.gather(*(asyncio.to_thread(open_postgres, address(url)) for _ in range(4)))
    for one in opened:
        await one.close()
    with psycopg.connect(url) as connection:
        query = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema !~ '^(pg_|info)'"
        tables = connection.execute(query).fetchall()
        version = connection.execute("SELECT version_num FROM hermes_memory.alembic_version").fetchall()
    own = {*metadata.tables, "alembic_version", "message_words", "commits"}
    assert sorted(tables) == sorted(("hermes_memory", name) for name in own)
    assert version == [(HEAD,)]


@pytest.mark.contract("9.7")
def test_password_is_refused_on_the_command_line_and_shown_nowhere() -> None:
    url = "postgresql://me:s3cret@127.0.0.1:1/memory"
    with pytest.raises(UsageError, match="password") as refused:
        find_address(url, {})
    found = find_address(None, {VARIABLE: url})
    assert found is not None
    with pytest.raises(StoreUnreachableError) as unreachable:
        open_postgres(found)
    shown = [str(found), repr(found), refused.value.line(), unreachable.value.line(), repr(unreachable.value)]
    assert not [text for text in shown if "s3cret" in text]
    assert "database memory on 127.0.0.1:1" in unreachable.value.line()


@pytest.mark.parametrize("given", ["sqlite:///x", "not a url", "postgresql://host", "https://host/x"])
def test_other_addresses_are_refused(given: str) -> None:
    with pytest.raises(UsageError, match=VARIABLE):
        find_address(None, {VARIABLE: given})


@pytest.mark.contract("9.7")
async def test_queued_work_wakes_other_processes_and_other_writes_do_not(postgres: Postgres) -> None:
    url = postgres.create()
    here, there, woken = open_postgres(address(url)), open_postgres(address(url)), threading.Event()
    there.watch_jobs(woken.set)
    listening = (
        select(text("count(*)"))
        .select_from(text("pg_stat_activity"))
        .where(text("query = 'LISTEN hermes_memory_jobs' AND datname = current_database()"))
    )
    while not await here.read(lambda tx: tx.execute(listening).scalar_one()):
        await asyncio.to_thread(woken.wait, 0.01)
    await here.write(lambda tx: ensure_workspace(tx, "w", AT))
    assert not woken.is_set()
    await here.write(lambda tx: add_job(tx, WebhookJob("", {}), "u", AT, 1))
    assert await asyncio.to_thread(woken.wait, 60)
    await here.close()
    await there.close()


async def test_tombstone_is_the_same_for_every_process(postgres: Postgres) -> None:
    url = postgres.create()
    here, there = open_postgres(address(url)), open_postgres(address(url))
    async with serving(here) as client:
        await client.post("/v3/workspaces/w/peers", json={"id": "ann"})
        new = {"content": "ann keeps bees", "observer_id": "ann", "observed_id": "ann"}
        await client.post("/v3/workspaces/w/conclusions", json={"conclusions": [new]})
        await there.write(lambda tx: add_tombstones(tx, 1, ["Ann keeps bees!"], AT))
        assert await there.read(lambda tx: find_tombstone_time(tx, 1, "ann keeps bees")) == AT
        assert await there.read(lambda tx: find_tombstone_time(tx, 1, "ann keeps cats")) is None
    await there.close()


@contextmanager
def losing_answers(port: int, lost: list[bytes], swallowed: list[bytes] | None = None) -> Iterator[int]:
    """Run a proxy that cuts off the answer to each statement in `lost`, once. The answer to one in `swallowed` never
    arrives, and the server does not learn that the client is gone, as when a machine loses its network."""
    unheard = [] if swallowed is None else swallowed

    def carry(client: socket.socket) -> None:
        with client, suppress(OSError), ExitStack() as stack:
            server = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            threading.Thread(target=_answer, args=(server, client), daemon=True).start()
            while data := client.recv(65536):
                if unheard and unheard[0] in data:
                    unheard.pop(0)
                    stack.pop_all()
                    open_ends.append(server)
                    client.shutdown(socket.SHUT_RDWR)
                    return
                server.sendall(data)
                if lost and lost[0] in data:
                    lost.pop(0)
                    client.shutdown(socket.SHUT_RDWR)
                    break
            server.shutdown(socket.SHUT_RDWR)

    open_ends: list[socket.socket] = []

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=carry, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
    for server in open_ends:
        server.close()


def _answer(server: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while data := server.recv(65536):
            client.sendall(data)
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


@pytest.mark.contract("9.7")
@pytest.mark.parametrize("statement", [b"COMMIT\0", b"hermes_memory.commits", b"BEGIN", b"NOTIFY"])
async def test_write_whose_answer_is_lost_is_done_once(postgres: Postgres, statement: bytes) -> None:
    url, lost = postgres.create(), list[bytes]()
    with losing_answers(postgres.port, lost) as port:
        opened = open_postgres(address(url.replace(str(postgres.port), str(port))))
        await opened.write(lambda tx: append_messages(tx, "w", "s", [draft("first", "p")], AT))
        lost.append(statement)
        more = [partial(append_messages, workspace="w", session="s", drafts=[draft(said, "p")], at=AT) for said in "ab"]
        appended = await asyncio.gather(*(opened.write(append, "w") for append in more))
        ids = await opened.read(
            lambda tx: [*tx.execute(select(messages.c.public_id).order_by(messages.c.seq)).scalars()]
        )
        await opened.close()
    assert lost == []
    assert ids[1:] == [stored.public_id for [stored] in appended]


@pytest.mark.contract("9.7")
async def test_write_that_a_crash_lost_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the crash, PostgreSQL assigns the lost transaction's id to another one, which commits."""
    may_go_on, lost = threading.Event(), list[bytes]()
    monkeypatch.setattr(module._Retries, "pause", lambda _, __: may_go_on.wait(60))
    with running_postgres("wal_writer_delay=10s") as server, losing_answers(server.port, [], lost) as port:
        url = server.create()
        opened = open_postgres(address(url.replace(str(server.port), str(port))))
        await opened.write(lambda tx: ensure_workspace(tx, "first", AT))
        lost.append(b"COMMIT\0")
        writing = asyncio.create_task(opened.write(lambda tx: ensure_workspace(tx, "second", AT)))
        while lost:
            await asyncio.to_thread(threading.Event().wait, 0.01)
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("CREATE TABLE IF NOT EXISTS others (number int)")
            for number in range(10):
                other.execute("INSERT INTO others VALUES (%s)", [number])
        may_go_on.set()
        await writing
        names = await opened.read(
            lambda tx: tx.exec_driver_sql("SELECT name FROM workspaces ORDER BY 1").scalars().all()
        )
        await opened.close()
    assert names == ["first", "second"]


@pytest.mark.contract("9.7")
async def test_client_that_is_gone_without_a_word_holds_no_lock_for_long(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, swallowed = postgres.create(), list[bytes]()
    monkeypatch.setattr(module, "WRITE", module.WRITE.replace(str(module.IDLE_MILLISECONDS), "1000"))
    first, second, third = (
        partial(append_messages, workspace="w", session="s", drafts=[draft(said, "p")], at=AT) for said in "abc"
    )
    with losing_answers(postgres.port, [], swallowed) as port:
        gone = open_postgres(address(url.replace(str(postgres.port), str(port))))
        other = open_postgres(address(url))
        await other.write(first)
        swallowed.append(b"COMMIT\0")
        lost = asyncio.create_task(gone.write(second))
        while swallowed:
            await asyncio.to_thread(threading.Event().wait, 0.01)
        await asyncio.wait_for(other.write(third), 60)
        await asyncio.wait_for(lost, 60)
        contents = select(messages.c.content).order_by(messages.c.seq)
        rows = await other.read(lambda tx: tx.execute(contents).scalars().all())
        load = gone.measure()
        await gone.close()
        await other.close()
    assert sorted(rows) == ["a", "b", "c"]
    assert load is not None
    assert (load.lost_connections > 0, load.connections_busy) == (True, 0)


@pytest.mark.contract("9.7")
async def test_restarted_database_is_told_once_and_recovered_from(caplog: pytest.LogCaptureFixture) -> None:
    with running_postgres() as server, caplog.at_level(logging.WARNING, "hermes.memory_server.db.postgres"):
        opened = open_postgres(address(server.create()))
        await opened.write(lambda tx: ensure_workspace(tx, "before", AT))
        server.stop()
        new = [partial(ensure_workspace, name=f"w{number}", at=AT) for number in range(6)]
        writes = [asyncio.create_task(opened.write(make)) for make in new]
        while not caplog.messages:
            await asyncio.wait(writes, timeout=0.01)
        await asyncio.to_thread(server.start)
        await asyncio.gather(*writes)
        names = await opened.read(
            lambda tx: tx.exec_driver_sql("SELECT name FROM workspaces ORDER BY 1").scalars().all()
        )
        await opened.close()
    assert names == ["before", *(f"w{n}" for n in range(6))]
    assert ["cannot be reached" in caplog.messages[0], "is reached again" in caplog.messages[-1]] == [True, True]
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(
    "end", ["SELECT pg_terminate_backend(pg_backend_pid())", "DO $$ BEGIN RAISE foreign_key_violation; END $$"]
)
async def test_transaction_that_was_cut_off_in_the_middle_is_run_again(postgres: Postgres, end: str) -> None:
    opened = open_postgres(address(postgres.create()))
    steps = iter([text(end), text("SELECT 7")] * 2)

    def take_step(tx: Tx) -> int:
        return int(tx.execute(next(steps)).scalar_one())

    assert [await opened.read(take_step), await opened.write(take_step)] == [7, 7]
    await opened.close()


async def test_process_whose_connection_is_lost_while_it_starts_connects_again(postgres: Postgres) -> None:
    url = postgres.create()
    waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
    with psycopg.connect(url, autocommit=True) as holder:
        holder.execute(f"SELECT pg_advisory_lock({SCHEMA_LOCK_KEY})".encode())
        opening = asyncio.create_task(asyncio.to_thread(open_postgres, address(url)))
        while (found := holder.execute(waiting.encode()).fetchone()) is None:
            await asyncio.to_thread(threading.Event().wait, 0.01)
        holder.execute("SELECT pg_terminate_backend(%s)", found)
        holder.execute(f"SELECT pg_advisory_unlock({SCHEMA_LOCK_KEY})".encode())
    await (await opening).close()


def test_folder_is_served_without_the_driver_of_postgres() -> None:
    code = "import sys, hermes.cli.memory_serving; print([m for m in sys.modules if 'psycopg' in m or 'postgres' in m])"
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.strip() == "[]"


@pytest.mark.contract("9.7")
def test_background_server_of_a_home_never_uses_the_database(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HERMES_HOME": str(tmp_path)}
    environment[VARIABLE] = "postgresql://nobody@127.0.0.1:1/nowhere"
    for command in ("start", "stop"):
        ran = [sys.executable, "-m", "hermes", "memory", command]
        subprocess.run(ran, env=environment, check=True, capture_output=True, timeout=100)
    assert (tmp_path / "memory" / FILE).exists()


async def test_health_tells_that_the_database_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.memory_server.db.postgres.RECOVER_SECONDS", 0.2)
    with running_postgres() as server:
        opened = open_postgres(address(server.create()))
        async with serving(opened) as client:
            await client.post("/v3/workspaces", json={"id": "w"})
            assert (await client.get("/health")).json()["disk_free_bytes"] is None
            server.stop()
            refused: httpx.Response = await client.post("/v3/workspaces", json={"id": "x"})
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
            told = await client.get("/health")
            assert (told.status_code, told.json()["database"]) == (503, "unreachable")
            server.start()
            assert (await client.post("/v3/workspaces", json={"id": "x"})).status_code == 201


NEXT = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "next", "{before}"


def upgrade() -> None:
    op.add_column("messages", sa.Column("extra", sa.Integer, nullable=False, server_default="0"))
"""


@pytest.mark.contract("9.7")
async def test_migration_holds_nobody_up_while_others_use_its_table(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_postgres(address(url := postgres.create()))
    shutil.copytree(schema.MIGRATIONS, tmp_path / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "migrations" / "versions" / "next.py").write_text(NEXT.format(before=HEAD))
    monkeypatch.setattr(schema, "MIGRATIONS", tmp_path / "migrations")
    monkeypatch.setattr(schema, "HEAD", "next")
    say = partial(append_messages, workspace="w", session="s", drafts=[draft("meanwhile", "p")], at=AT)
    with psycopg.connect(url) as reader:
        reader.execute("SELECT count(*) FROM hermes_memory.messages")  # holds the table until its transaction ends
        upgraded = asyncio.create_task(asyncio.to_thread(open_postgres, address(url)))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'ALTER TABLE'"
        with psycopg.connect(url, autocommit=True) as watcher:
            for _ in range(2):  # it waits, lets others through, and waits again
                while watcher.execute(waiting.encode()).fetchone() == (0,):
                    await asyncio.to_thread(threading.Event().wait, 0.01)
                await asyncio.wait_for(opened.write(say), 20)
        assert not upgraded.done()
    newer = await upgraded
    columns = text("SELECT count(*) FROM information_schema.columns WHERE column_name = 'extra'")
    assert await newer.read(lambda tx: tx.execute(columns).scalar_one()) == 1
    await newer.close()
    await opened.close()


def test_newer_migrations_make_indexes_the_slow_way_alone() -> None:
    newer = [path for path in schema.MIGRATIONS.glob("versions/v*.py") if path.name > "v0019_rereading.py"]
    assert not [path.name for path in newer if "create_index" in path.read_text() or "CREATE INDEX" in path.read_text()]
