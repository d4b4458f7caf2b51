"""A folder of an earlier version is served at once, and upgraded in the background."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from hermes.clock import SystemClock
from hermes.memory_server.db.catching_up import catch_up, has_caught_up
from hermes.memory_server.db.migrations.versions.v0006_traits import MAX_MESSAGES_BEFORE_START
from hermes.memory_server.db.schema import FILE, open_database
from hermes.memory_server.engine.job_handlers import ROWS_PER_TRANSACTION
from hermes.memory_server.engine.recall import View
from hermes.memory_server.engine.standing import find_standing
from hermes.memory_server.engine.worker import JobWorker
from hermes.ranking.traits import traits_of
from tests.memory_server.floor import EMBEDDER
from tests.memory_server.in_file import wait_for_work
from tests.memory_server.older import BEFORE_TRUTH
from tests.memory_server.serving import inside, running
from tests.memory_server.talking import say

pytestmark = pytest.mark.contract("9.10")
CHINESE = "我喜欢在马耳他集邮票"
PLAIN = "I was at the harbour yesterday."
DOOMED = "昨天去了图书馆"


async def make_old(folder: Path) -> None:
    """Create a folder of the previous version, with more messages than are upgraded before the start."""
    await open_database(folder).close()
    texts = [PLAIN] * MAX_MESSAGES_BEFORE_START + [CHINESE, DOOMED, PLAIN]
    with closing(sqlite3.connect(folder / FILE)) as file, file:
        file.execute("INSERT INTO workspaces (id, uid, name, created_at) VALUES (1, 'w', 'w', 1)")
        file.execute("INSERT INTO peers (id, uid, workspace_id, name, created_at) VALUES (1, 'p', 1, 'ann', 1)")
        session = "INSERT INTO sessions (id, uid, workspace_id, name, message_count, created_at)"
        file.execute(f"{session} VALUES (1, 's', 1, 's', ?, 1)", (len(texts),))
        names = "id, public_id, workspace_id, session_id, peer_id, token_count, seq, content, created_at"
        rows = [(n, f"m{n}", n, text, 1_700_000_000_000_000 + n) for n, text in enumerate(texts, 1)]
        file.executemany(f"INSERT INTO messages ({names}) VALUES (?, ?, 1, 1, 1, 5, ?, ?, ?)", rows)
        vector = "INSERT INTO message_vectors (workspace_id, message_id, piece, session_id, peer_id, vector)"
        file.executemany(f"{vector} VALUES (1, ?, 0, 1, 1, zeroblob(512))", [(row[0],) for row in rows])
        file.execute("INSERT INTO message_index (rowid, scope, content) SELECT id, scope, content FROM message_texts")
        for name in ("traits", "said_at"):
            file.execute(f"ALTER TABLE message_vectors DROP COLUMN {name}")
        for name in ("finer_vectors", "finer_progress", "finer_again", "departures", "model_calls", "dreams"):
            file.execute(f"DROP TABLE {name}")
        for name in ("answers_of_clones", "conclusions_standing"):
            file.execute(f"DROP INDEX {name}")
        file.execute("ALTER TABLE conclusions DROP COLUMN standing")
        for change in BEFORE_TRUTH:
            file.execute(change)
        file.execute("UPDATE alembic_version SET version_num = '0005'")


def known(folder: Path) -> list[tuple[str, int, int, int]]:
    query = "SELECT content, traits, said_at, created_at FROM messages m JOIN message_vectors v ON v.message_id = m.id"
    with closing(sqlite3.connect(folder / FILE)) as file:
        return [tuple(row) for row in file.execute(query)]


def best(http: httpx.Client, query: str) -> str:
    return str(http.post("/search", json={"query": query, "limit": 1}).json()[0]["content"])


@pytest.mark.processes
async def test_folder_of_an_earlier_version_is_served_before_it_has_caught_up(tmp_path: Path) -> None:
    await make_old(tmp_path)
    with running(tmp_path, "--no-worker") as served, inside(served, "w") as http:
        with served.client() as outside:
            assert outside.get("/health").json()["lag"]["waiting_jobs"] == 2, "indexing and rereading"
        assert best(http, "harbour") == PLAIN
        say(http, "s", "我在这里喝茶", peer="ann")
        assert best(http, "喝茶") == "我在这里喝茶"
        assert http.delete(f"/ext/sessions/s/messages/m{MAX_MESSAGES_BEFORE_START + 2}").json() == {"deleted": 1}
        copy = http.post(f"/sessions/s/clone?message_id=m{MAX_MESSAGES_BEFORE_START + 1}").json()["id"]
        assert http.post(f"/sessions/{copy}/messages/list?size=1").json()["total"] == MAX_MESSAGES_BEFORE_START + 1
    with closing(sqlite3.connect(tmp_path / FILE)) as file, file:  # reading again has tests of its own
        file.execute("DELETE FROM meta WHERE name LIKE 'reread:%'")
    with running(tmp_path) as served, inside(served, "w") as http:
        wait_for_work(tmp_path)
        assert best(http, "马耳") == CHINESE
        assert best(http, "harbour") == PLAIN
    for content, traits, said_at, created_at in known(tmp_path):
        assert (traits, said_at) == (traits_of(content), created_at), content
    assert [count_of(tmp_path, word) for word in (DOOMED, "图书", "马耳")] == [0, 0, 2], (
        "one has a copy, one is deleted"
    )


def count_of(folder: Path, word: str) -> int:
    """Return how many messages the index lists for a word, whether they exist or not."""
    with closing(sqlite3.connect(folder / FILE)) as file:
        query = "SELECT count(*) FROM (SELECT rowid FROM message_index WHERE message_index MATCH ?)"
        return int(file.execute(query, (f'"{word}"',)).fetchone()[0])


@pytest.mark.contract("7.3")
async def test_what_always_holds_is_found_in_conclusions_of_an_earlier_version(tmp_path: Path) -> None:
    await make_old(tmp_path)
    held = [
        "ann: My name is Ann.",
        *(f"ann: I ate {number} figs." for number in range(ROWS_PER_TRANSACTION)),
        "ann: I'm a nurse.",
    ]
    with closing(sqlite3.connect(tmp_path / FILE)) as file, file:
        file.execute("INSERT INTO collections (id, workspace_id, observer_id, observed_id) VALUES (1, 1, 1, 1)")
        names = "public_id, workspace_id, collection_id, content, digest, created_at, vector"
        rows = [(f"c{number}", text, f"d{number}", number) for number, text in enumerate(held)]
        file.executemany(f"INSERT INTO conclusions ({names}) VALUES (?, 1, 1, ?, ?, ?, zeroblob(512))", rows)
    database = open_database(tmp_path)
    worker = JobWorker(database, SystemClock(), EMBEDDER)
    while await worker.work_once():
        pass
    found = await database.read(lambda tx: find_standing(tx, [View(1, 1)]))
    await database.close()
    assert [(row.standing, row.content) for row in found] == [("name", held[0]), ("identity", held[-1])]


async def test_catching_up_goes_on_where_it_was_after_a_restart(tmp_path: Path) -> None:
    await make_old(tmp_path)
    database = open_database(tmp_path)
    assert not await database.read(has_caught_up)
    assert await database.write(lambda tx: catch_up(tx, 1))
    await database.close()
    database = open_database(tmp_path)
    worker = JobWorker(database, SystemClock(), EMBEDDER)
    assert await worker.work_once()
    assert await database.read(has_caught_up)
    await database.close()
    assert all(row[1] for row in known(tmp_path))
