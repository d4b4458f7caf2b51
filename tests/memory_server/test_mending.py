"""Damaged or missing search data is rebuilt, and processes that search beside a writer agree."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from hermes.memory_server.db.catching_up import begin_catching_up
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import FILE, open_database
from hermes.memory_server.db.sqlite import SqliteFile
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.engine.messages import append_messages
from tests.memory_server.floor import draft, new_index, question, search_messages
from tests.memory_server.serving import Served, running

TEXTS = ["I keep bees.", "我学小提琴已经两年了。", "They make honey.", "My sister lives in Ghent."] * 10
QUERIES = ("Who keeps bees?", "小提琴", "Where does my sister live?", "honey")


def say(served: Served, session: str, texts: list[str]) -> None:
    with served.client() as client:
        said = [{"content": text, "peer_id": "ann"} for text in texts]
        path = f"/v3/workspaces/w/sessions/{session}/messages"
        assert client.post(path, json={"messages": said}).status_code == 201


def search(served: Served) -> list[list[str]]:
    with served.client() as client:
        answers = [client.post("/v3/workspaces/w/search", json={"query": q, "limit": 50}) for q in QUERIES]
        return [[row["id"] for row in answer.raise_for_status().json()] for answer in answers]


async def find(database: SqliteFile) -> list[list[int]]:
    def run(tx: Tx) -> list[list[int]]:
        found = [search_messages(tx, new_index(), SearchArea(1), question(query), None, 50) for query in QUERIES]
        return [[row.id for row in rows] for rows in found]

    return await database.read(run)


def add(tx: Tx, texts: list[str]) -> None:
    append_messages(tx, "w", "s", [draft(text, "ann") for text in texts], 1)


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TABLE message_index",
        "DROP TABLE message_index_data",
        "DROP TABLE message_index_docsize",
        "DELETE FROM message_index_config",
        "UPDATE message_index_data SET block = zeroblob(20)",
        "DELETE FROM message_index_docsize WHERE id > 20",
    ],
)
async def test_index_of_words_that_is_gone_or_damaged_is_made_again(tmp_path: Path, damage: str) -> None:
    database = open_database(tmp_path)
    await database.write(lambda tx: add(tx, TEXTS))
    before = await find(database)
    assert all(before)
    await database.close()
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as raw:
        raw.execute(damage)
    database = open_database(tmp_path)
    assert await find(database) == before
    await database.write(lambda tx: add(tx, ["I keep bees too."]))
    assert len((await find(database))[0]) == len(before[0]) + 1
    await database.close()


def count_rebuilds(caplog: pytest.LogCaptureFixture) -> int:
    return sum("was rebuilt" in record.getMessage() for record in caplog.records)


async def test_damaged_text_index_is_rebuilt_once_by_many_processes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = open_database(tmp_path)
    await database.write(lambda tx: add(tx, TEXTS))
    await database.close()
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as raw:
        raw.execute("DELETE FROM message_index_docsize WHERE id < 5")
    for _ in range(3):
        await open_database(tmp_path).close()
    assert count_rebuilds(caplog) == 1


@pytest.mark.parametrize(
    "said",
    [
        "^_^ hello",
        "_",
        "___ hello",
        "snake_case_name",
        "\ue000touching\ue001 words",
        "10㎏の米",
        "Pythonの話",
        "café",
        "it's",
        "a\x00bcd efg",
        "tab\tand\nline",
        "?!",
        "x" * 70_000,
        "İstanbul ǅ ﬁne",
        "Running AND NEAR or",
    ],
)
async def test_whole_index_of_words_is_left_alone_however_its_messages_begin(
    tmp_path: Path, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    database = open_database(tmp_path)
    await database.write(lambda tx: add(tx, [said]))
    await database.close()
    await open_database(tmp_path).close()
    assert count_rebuilds(caplog) == 0


async def test_index_of_words_that_an_earlier_version_wrote_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = open_database(tmp_path)
    await database.write(lambda tx: add(tx, ["Pythonの話"]))
    await database.write(begin_catching_up)
    await database.close()
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as raw:
        raw.execute("DROP TABLE message_index_docsize")
    for _ in range(2):
        await open_database(tmp_path).close()
    assert count_rebuilds(caplog) == 1, "the second opening finds it whole, in the earlier spelling"


@pytest.mark.processes
@pytest.mark.contract("9.1")
def test_two_servers_find_the_same_while_a_third_writes(tmp_path: Path) -> None:
    with (
        running(tmp_path) as writer,
        running(tmp_path, "--no-worker") as one,
        running(tmp_path, "--no-worker") as other,
    ):
        say(writer, "s", TEXTS)
        assert search(one) == search(other) == search(writer)
        ended = threading.Event()

        def write() -> None:
            for number in range(20):
                say(writer, f"s{number % 3}", [f"I keep {number} bees.", "They make honey.", "小提琴"])
            ended.set()

        thread = threading.Thread(target=write)
        thread.start()
        counts: list[int] = []
        while not ended.is_set():
            counts.append(len(search(one)[0]))
            assert all(search(other))
        thread.join()
        assert counts == sorted(counts), "nothing that was there is missed later"
        assert search(one) == search(other) == search(writer)
