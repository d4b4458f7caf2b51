"""Many processes on one PostgreSQL, while processes, connections and the database itself are killed repeatedly."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import func, select

from hermes.errors import StoreError
from hermes.memory_server.db.address import DatabaseAddress
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import open_postgres
from hermes.memory_server.db.tables import conclusions, summaries
from hermes.memory_server.engine import embedding
from hermes.memory_server.engine.deletion import begin_removal, remove_part
from hermes.memory_server.engine.job_handlers import HANDLERS, JobTools
from hermes.memory_server.engine.jobs import claim_job
from hermes.memory_server.engine.messages import append_messages
from hermes.memory_server.engine.workspaces import ensure_workspace
from hermes.memory_server.faults import Missing
from tests.memory_server.embeddings import FavouriteWordEmbedder
from tests.memory_server.floor import EMBEDDER, draft
from tests.memory_server.losing import LosingTransport
from tests.memory_server.serving import ROOT, Served, kill, start, stop
from tests.postgres import Postgres, running_postgres
from tests.scale import FULL, scale

pytestmark = pytest.mark.processes
AT = 1_700_000_000_000_000
APIS, WORKERS, WRITERS, SESSIONS = scale(2, 4), scale(1, 3), scale(6, 32), 4
QUIET = {"PYTHONWARNINGS": "ignore"}
DEADLINE_SECONDS = 240.0


class Cluster:
    """API processes and workers over one database; each that is killed is restarted."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self.apis = [self._serve() for _ in range(APIS)]
        self.workers = [self._work() for _ in range(WORKERS)]
        self._clients: list[httpx.Client] = []

    def post(self, client: httpx.Client, chance: random.Random, path: str, body: Any, key: str) -> Any:
        """Send a request to one process after another until one confirms it."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                served = chance.choice(self.apis)
                answer = client.post(f"{served.url}{path}", json=body, headers={"Idempotency-Key": key})
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code in (200, 201):
                return answer.json()
            assert answer is None or answer.status_code in (503, 507), answer.text
            assert time.monotonic() < deadline, "nobody answers"
            time.sleep(0.02)

    def kill_api(self, number: int) -> None:
        kill(self.apis[number])
        self.apis[number] = self._serve()

    def kill_worker(self, number: int) -> None:
        self.workers[number].kill()
        self.workers[number].wait()
        self.restart_ended_workers()

    def restart_ended_workers(self) -> None:
        """Do as a supervisor does: a worker that finds no database when it starts ends."""
        for number, worker in enumerate(self.workers):
            if worker.poll() is not None:
                self.workers[number] = self._work()

    def close(self) -> None:
        for worker in self.workers:
            worker.terminate()
            worker.wait()
        for served in self.apis:
            stop(served)

    def _serve(self) -> Served:
        return start(self._folder, "--no-worker", "--database", self._url)

    def _work(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "hermes", "memory", "worker", "--database", self._url]
        environment = {**os.environ, "HERMES_HOME": str(self._folder), "PYTHONPATH": str(ROOT / "src")}
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)


@contextmanager
def clustered(url: str, folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(url, folder)
    try:
        yield cluster
    finally:
        cluster.close()


def disturb(cluster: Cluster, postgres: Postgres, is_over: threading.Event) -> Counter[str]:
    """Kill a process each second, cut connections at random, and restart the database twice."""
    chance, done = random.Random(26), Counter[str]()
    for step in range(scale(5, 60)):
        if is_over.wait(1.0):
            break
        if step in (scale(1, 20), scale(3, 40)):
            postgres.stop("fast" if done["restarts"] else "immediate")
            postgres.start()
            done["restarts"] += 1
        elif step % 3 == 2:
            cluster.kill_worker(chance.randrange(WORKERS))
            done["workers"] += 1
        else:
            cluster.kill_api(chance.randrange(APIS))
            done["apis"] += 1
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hermes-memory'"
            connection.execute(f"{query} AND random() < 0.2".encode())
            done["cut"] += 1
    return done


def read_all(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, options="-csearch_path=hermes_memory") as connection:
        return connection.execute(query.encode()).fetchall()


def wait_until_done(url: str, cluster: Cluster) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while left := read_all(url, "SELECT kind, state, attempts, error FROM jobs WHERE state <> 'done'"):
        assert time.monotonic() < deadline, left[:5]
        cluster.restart_ended_workers()
        time.sleep(0.1)


@pytest.mark.stress
@pytest.mark.contract("9.7")
def test_many_processes_lose_nothing_while_they_and_the_database_are_ended(tmp_path: Path) -> None:
    with running_postgres() as postgres:
        url = postgres.create()
        is_over = threading.Event()
        with clustered(url, tmp_path) as cluster:

            def write(number: int) -> dict[str, list[str]]:
                chance, said = random.Random(number), {f"s{session}": list[str]() for session in range(SESSIONS)}
                with httpx.Client(transport=LosingTransport(number, reply=0.1), timeout=60) as client:
                    turn = 0
                    while not (is_over.is_set() and turn >= 3):
                        session, text = f"s{chance.randrange(SESSIONS)}", f"I own book {number} of shelf {turn}."
                        body = {"messages": [{"content": text, "peer_id": f"p{number}"}]}
                        path = f"/v3/workspaces/w/sessions/{session}/messages"
                        cluster.post(client, chance, path, body, f"{number}-{turn}")
                        said[session].append(text)
                        turn += 1
                return said

            with ThreadPoolExecutor(WRITERS + 1) as pool:
                disturbing = pool.submit(disturb, cluster, postgres, is_over)
                writing = [pool.submit(write, number) for number in range(WRITERS)]
                disturbing.add_done_callback(lambda _: is_over.set())
                said = [writer.result() for writer in writing]
                done = disturbing.result()
            wait_until_done(url, cluster)
        assert done["restarts"] == 2
        assert done["apis"] >= scale(2, 30)
        count = check_exact(url, said)
        processes = f"{WRITERS} writers, {APIS} API processes, {WORKERS} workers"
        sys.stderr.write(f"{count} messages, {processes}: {dict(done)}\n")


def check_exact(url: str, said: list[dict[str, list[str]]]) -> int:
    """Check that each text is stored once, in its writer's order, counted, findable, and derived once; return their
    number."""
    everything = Counter(text for own in said for texts in own.values() for text in texts)
    stored: dict[str, list[str]] = {}
    query = "SELECT s.name, m.content FROM messages m JOIN sessions s ON s.id = m.session_id ORDER BY s.id, m.seq"
    for session, content in read_all(url, query):
        stored.setdefault(session, []).append(content)
    assert Counter(text for texts in stored.values() for text in texts) == everything
    for own in said:
        for session, texts in own.items():
            places = [stored[session].index(text) for text in texts]
            assert places == sorted(places), f"the order in {session} changed"
    assert read_all(url, "SELECT session_id FROM messages GROUP BY 1 HAVING count(*) <> max(seq)") == []
    assert read_all(url, "SELECT name FROM sessions s WHERE message_count <> (SELECT count(*) FROM messages m "
                    "WHERE m.session_id = s.id)") == []  # fmt: skip
    for table in ("message_vectors", "message_words"):
        assert read_all(url, f"SELECT id FROM messages WHERE id NOT IN (SELECT message_id FROM {table})") == []
    query = "SELECT content, times_derived FROM conclusions WHERE level = 'explicit' AND deleted_at IS NULL"
    derived = Counter(row[0].partition(": ")[2] for row in read_all(url, query))
    assert derived == everything, "a message was reasoned about twice or not at all"
    assert {row[1] for row in read_all(url, query)} == {1}
    assert not FULL or sum(everything.values()) > 1000
    return sum(everything.values())


@pytest.mark.parametrize("kind", ["representation", "summary"])
async def test_message_deleted_while_it_is_learnt_from_leaves_nothing(postgres: Postgres, kind: str) -> None:
    opened = open_postgres(DatabaseAddress.parse(url := postgres.create(), "test"))
    drafts = [draft(f"I own house {number}.", "ann") for number in range(20)]
    made = await opened.write(partial(append_messages, workspace="w", session="s", drafts=drafts, at=AT))
    job = await opened.write(lambda tx: claim_job(tx, "me", kind, AT))
    assert job is not None
    prepared = await HANDLERS[kind].prepare(JobTools(opened, EMBEDDER), job)
    begun = await opened.write(lambda tx: begin_removal(tx, "w", "s", made[0].public_id, made[19].public_id, AT))
    is_learnt, is_over = threading.Event(), threading.Event()

    def learn(tx: Tx) -> None:
        HANDLERS[kind].commit(tx, job, prepared, AT)
        is_learnt.set()
        assert is_over.wait(30)

    learning = asyncio.create_task(opened.write(learn))
    await asyncio.to_thread(is_learnt.wait, 30)
    removing = asyncio.create_task(opened.write(lambda tx: remove_part(tx, begun, AT)))
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(url, autocommit=True) as watcher:
        while not removing.done() and watcher.execute(waiting.encode()).fetchone() is None:
            await asyncio.to_thread(threading.Event().wait, 0.01)
    is_over.set()
    await asyncio.gather(learning, removing)
    left = select(func.count()).select_from({"representation": conclusions, "summary": summaries}[kind])
    assert await opened.read(lambda tx: tx.execute(left).scalar_one()) == 0
    await opened.close()


@contextmanager
def workspace_locked(url: str) -> Iterator[None]:
    """Hold the lock that appends to any workspace wait for."""
    with psycopg.connect(url) as holder:
        holder.execute("SELECT FROM hermes_memory.workspaces FOR UPDATE")
        yield


@pytest.mark.contract("9.7")
async def test_appends_that_wait_for_each_other_share_a_commit(postgres: Postgres) -> None:
    opened = open_postgres(DatabaseAddress.parse(url := postgres.create(), "test"))
    said = [
        partial(append_messages, workspace="w", session=f"s{n % 3}", drafts=[draft(f"{n}", "p")], at=AT)
        for n in range(30)
    ]
    await opened.write(said[0], "w")
    with workspace_locked(url):
        appending = [asyncio.create_task(opened.write(append, "w")) for append in said[1:]]
        await asyncio.sleep(0)
        await asyncio.wait_for(opened.write(lambda tx: ensure_workspace(tx, "other", AT), "other"), 30)
    await asyncio.gather(*appending)
    rows = read_all(url, "SELECT content, xmin::text FROM messages ORDER BY id")
    await opened.close()
    assert [row[0] for row in rows] == [str(number) for number in range(30)]
    assert len({row[1] for row in rows}) <= 3


@pytest.mark.contract("9.7")
async def test_write_that_fails_harms_none_that_share_its_commit(postgres: Postgres) -> None:
    opened = open_postgres(DatabaseAddress.parse(url := postgres.create(), "test"))

    def append(tx: Tx, said: str) -> None:
        append_messages(tx, "w", "s", [draft(said, "p")], AT)
        if said == "refused":
            raise Missing("Peer", "p", "w")
        if said == "odd":
            tx.exec_driver_sql("SELECT 1 / 0")

    await opened.write(partial(append, said="first"), "w")
    with workspace_locked(url):
        asked = ["a", "b", "refused", "c", "odd", "d"]
        appending = [asyncio.create_task(opened.write(partial(append, said=said), "w")) for said in asked]
        await asyncio.sleep(0)
    results = await asyncio.gather(*appending, return_exceptions=True)
    assert [type(result) for result in results] == [*[type(None)] * 2, Missing, type(None), StoreError, type(None)]
    assert [row[0] for row in read_all(url, "SELECT content FROM messages ORDER BY id")] == ["first", *"abcd"]
    await opened.close()


@pytest.mark.contract("9.7")
async def test_second_embedder_hears_of_messages_that_other_processes_write(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(embedding, "QUIET_SECONDS", 0.05)
    url = postgres.create()
    there, here = (open_postgres(DatabaseAddress.parse(url, "test")) for _ in range(2))
    refinement = embedding.Refinement(FavouriteWordEmbedder("kind", "tree"))
    listening = "SELECT count(*) FROM pg_stat_activity WHERE query ~ '^LISTEN' AND datname = current_database()"
    async with embedding.refining(there, refinement):
        while read_all(url, listening) == [(0,)] or not read_all(
            url, "SELECT 1 FROM meta WHERE name = 'finer_embedder'"
        ):
            await asyncio.to_thread(threading.Event().wait, 0.01)
        await here.write(partial(append_messages, workspace="w", session="s", drafts=[draft("A tree.", "p")], at=AT))
        while not read_all(url, "SELECT 1 FROM finer_vectors"):
            await asyncio.to_thread(threading.Event().wait, 0.01)
    await there.close()
    await here.close()


@pytest.mark.contract("9.7")
async def test_missing_index_is_made_beside_those_who_write(postgres: Postgres) -> None:
    opened = open_postgres(DatabaseAddress.parse(url := postgres.create(), "test"))
    say = partial(append_messages, workspace="w", session="s", drafts=[draft("meanwhile", "p")], at=AT)
    await opened.write(say)
    valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('hermes_memory.messages_by_peer')"
    with psycopg.connect(url, autocommit=True) as watcher:
        watcher.execute("DROP INDEX hermes_memory.messages_by_peer")
        with psycopg.connect(url) as writer:
            writer.execute("UPDATE hermes_memory.messages SET metadata = metadata")
            upgraded = asyncio.create_task(asyncio.to_thread(open_postgres, DatabaseAddress.parse(url, "test")))
            while watcher.execute(valid.encode()).fetchone() != (False,):
                await asyncio.to_thread(threading.Event().wait, 0.01)
            await asyncio.wait_for(opened.write(partial(say, session="t")), 20)
            assert not upgraded.done()
        await (await upgraded).close()
        assert watcher.execute(valid.encode()).fetchone() == (True,)
    await opened.close()
