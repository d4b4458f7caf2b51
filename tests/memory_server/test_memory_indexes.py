"""The cached in-memory index of a workspace may be deleted or damaged, and is never wrong."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import select

from hermes.clock import SystemClock
from hermes.memory_server.api.app import Loading
from hermes.memory_server.db import tables
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.db.sqlite import SqliteFile
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.embedder import SHIPPED
from hermes.memory_server.engine import departures, memory_index, memory_indexes
from hermes.memory_server.engine.deletion import (
    begin_removal,
    delete_session,
    delete_workspace,
    purge_session,
    remove_part,
)
from hermes.memory_server.engine.job_kinds import MessageRemovalJob
from hermes.memory_server.engine.memory_index import ARRAYS, OutlineRows
from hermes.memory_server.engine.memory_indexes import MemoryIndexes
from hermes.memory_server.engine.messages import append_messages, list_messages
from hermes.memory_server.engine.paging import PageRequest
from hermes.memory_server.engine.peer_deletion import delete_peer
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.worker import JobWorker
from tests.memory_server.floor import EMBEDDER, draft, question, search_messages
from tests.memory_server.sdk import eventually
from tests.memory_server.serving import running
from tests.memory_server.storage import transaction

NOW = 1_700_000_000_000_000
WORDS = ("barn", "boat", "cello", "house", "tractor")
pytestmark = pytest.mark.contract("9.1")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_indexes, "SAVE_AFTER_ROWS", 10)


def say(tx: Tx, session: str, texts: Sequence[str]) -> None:
    append_messages(tx, "w", session, [draft(text, "ann") for text in texts], NOW)


async def filled(folder: Path, word: str = "number") -> SqliteFile:
    database = open_database(folder)
    await database.write(lambda tx: say(tx, "talk", [f"I own {word} {place}." for place in range(30)]))
    await database.write(lambda tx: say(tx, "other", ["I keep bees.", "They make honey."]))
    return database


def lists(rows: OutlineRows) -> list[object]:
    return [getattr(rows, name).tolist() for name in ARRAYS]


async def load(database: SqliteFile, folder: Path | None) -> list[object]:
    return await database.read(lambda tx: lists(MemoryIndexes(SHIPPED.dimension, folder=folder).load(tx, 1).rows))


async def test_outline_of_the_last_start_is_used_and_followed(tmp_path: Path) -> None:
    database = await filled(tmp_path)
    await load(database, tmp_path)
    assert (tmp_path / "outline-1").exists()
    await database.write(lambda tx: say(tx, "talk", ["Since then."]))
    await database.write(lambda tx: purge_session(tx, get_session(tx, "w", "other").id, NOW))
    assert await load(database, tmp_path) == await load(database, None)
    await database.close()


async def search(database: SqliteFile, index: VectorIndex, word: str) -> list[int]:
    asked = question(f"who owns a {word}")
    found = await database.read(lambda tx: search_messages(tx, index, SearchArea(1), asked, None, 50))
    return [row.id for row in found]


async def remove(database: SqliteFile, session: int, first: int, last: int) -> None:
    await database.write(lambda tx: remove_part(tx, MessageRemovalJob(session, first, last), NOW))


async def look(database: SqliteFile, known: MemoryIndexes) -> list[object]:
    seen = await database.read(lambda tx: known.load(tx, 1))
    return [*lists(seen.rows), seen.ends]


async def test_after_a_deletion_only_the_removed_ids_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database, chance = open_database(tmp_path), random.Random(15)
    for part in range(20):
        texts = [f"I own {chance.choice(WORDS)} {part}. " * chance.choice((1, 1, 1, 90)) for _ in range(12)]
        await database.write(partial(say, session=f"s{part % 5}", texts=texts))
    index = VectorIndex(SHIPPED.dimension)
    monkeypatch.setattr(memory_indexes, "AUTHORS", None)  # reading everything again would fail
    for turn in range(12):
        await search(database, index, WORDS[turn % len(WORDS)])
        session, first = 1 + turn % 5, chance.randrange(1, 48)
        await remove(database, session, first, first + chance.choice((0, 0, 3)))
        if turn % 4 == 3:
            await database.write(partial(say, session=f"s{session}", texts=["I own a barn since then."]))
        fresh = VectorIndex(SHIPPED.dimension)
        for word in WORDS:
            assert await search(database, index, word) == await search(database, fresh, word)
        assert await look(database, index.memory_indexes) == await look(database, fresh.memory_indexes)
    await database.write(lambda tx: purge_session(tx, 1, NOW))
    assert await look(database, index.memory_indexes) == await look(database, MemoryIndexes(SHIPPED.dimension))
    await database.close()


async def test_who_is_further_behind_than_is_written_down_reads_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departures, "MAX_GENERATIONS", 2)
    database = await filled(tmp_path)
    index = MemoryIndexes(SHIPPED.dimension)
    await look(database, index)
    for number in (3, 7, 8, 20):
        await remove(database, 1, number, number)
    with transaction(tmp_path) as tx:
        assert set(tx.execute(select(tables.departures.c.generation)).scalars()) == {3, 4}
    assert await look(database, index) == await look(database, MemoryIndexes(SHIPPED.dimension))
    await database.close()


async def test_too_many_removals_at_once_are_recorded_as_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departures, "MAX_ROWS", 100)
    database = open_database(tmp_path)
    for _ in range(8):
        await database.write(lambda tx: say(tx, "talk", [f"I own number {place}." for place in range(50)]))
    index = MemoryIndexes(SHIPPED.dimension)
    await look(database, index)
    removal = MessageRemovalJob(1, 1, 200)
    for _ in range(5):  # parts of 50
        await database.write(lambda tx: remove_part(tx, removal, NOW))
    with transaction(tmp_path) as tx:
        assert departures.departed_since(tx, 1, 0, 1) is None
        assert len(tx.execute(select(tables.departures)).all()) == 102, "with an end, and a note of the rest"
    assert await look(database, index) == await look(database, MemoryIndexes(SHIPPED.dimension))
    await database.close()


async def test_the_list_of_removed_messages_is_bounded_and_a_partial_list_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departures, "MAX_ROWS", 40)
    monkeypatch.setattr(departures, "ROWS_PER_CLEANUP", 12)
    database = open_database(tmp_path)
    for _ in range(4):
        await database.write(lambda tx: say(tx, "talk", [f"I own number {place}." for place in range(50)]))
    outlines_at: list[MemoryIndexes] = []
    for turn in range(18):
        outlines_at.append(MemoryIndexes(SHIPPED.dimension))
        await look(database, outlines_at[-1])
        await remove(database, 1, turn * 10 + 1, turn * 10 + 10)
        with transaction(tmp_path) as tx:
            assert len(tx.execute(select(tables.departures)).all()) <= 40 + 11 + 12
    with transaction(tmp_path) as tx:
        assert departures.departed_since(tx, 1, 17, 18) is not None
        for known in range(18):
            gone = departures.departed_since(tx, 1, known, 18)
            assert gone is None or len(gone) == 10 * (18 - known)
    expected = await look(database, MemoryIndexes(SHIPPED.dimension))
    for index in outlines_at:
        assert await look(database, index) == expected
    await database.close()


async def test_search_in_an_older_snapshot_puts_nothing_back_that_was_deleted(tmp_path: Path) -> None:
    database = await filled(tmp_path)
    await database.write(lambda tx: say(tx, "talk", ["I own a harp."]))
    index = VectorIndex(SHIPPED.dimension)
    await search(database, index, "harp")
    with transaction(tmp_path) as older:
        assert older.execute(select(tables.messages.c.id)).first() is not None  # its snapshot begins
        await remove(database, 1, 31, 31)
        await search(database, index, "harp")
        asked = question("who owns a harp")
        assert search_messages(older, index, SearchArea(1), asked, None, 50)
    assert await search(database, index, "harp") == await search(database, VectorIndex(SHIPPED.dimension), "harp")
    assert await look(database, index.memory_indexes) == await look(database, MemoryIndexes(SHIPPED.dimension))
    await database.close()


async def test_long_run_of_messages_leaves_in_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = open_database(tmp_path)
    for _ in range(11):
        await database.write(lambda tx: say(tx, "talk", [f"I own number {place}." for place in range(100)]))
    index = MemoryIndexes(SHIPPED.dimension)
    await look(database, index)
    for _ in range(21):  # parts of 50
        await database.write(lambda tx: remove_part(tx, MessageRemovalJob(1, 20, 1050), NOW))
    steps: list[None] = []
    monkeypatch.setattr(memory_index, "check_reading", lambda: steps.append(None))
    left = await look(database, index)
    assert 0 < len(steps) <= 12, "each looks twice as far as the one before"
    assert left == await look(database, MemoryIndexes(SHIPPED.dimension))
    await database.close()


@pytest.mark.parametrize("damage", ["deleted", "cut", "turned", "empty", "another", "no json"])
async def test_outline_that_is_not_true_is_made_again(tmp_path: Path, damage: str) -> None:
    database = await filled(tmp_path)
    expected = await load(database, tmp_path)
    path = tmp_path / "outline-1"
    whole = path.read_bytes()
    if damage == "deleted":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(whole[:-8])
    elif damage == "turned":
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "no json":
        path.write_bytes(b"x" * 5000)
    else:
        (tmp_path / "else").mkdir()
        strange = await filled(tmp_path / "else", "house")
        await load(strange, tmp_path / "else")
        await strange.close()
        path.write_bytes((tmp_path / "else" / "outline-1").read_bytes())
    assert await load(database, tmp_path) == expected
    await database.close()


@pytest.mark.parametrize("is_cleaned", [True, False])
async def test_new_messages_are_found_after_the_database_was_put_back_from_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_cleaned: bool
) -> None:
    monkeypatch.setattr(memory_indexes, "SAVE_PAUSE_SECONDS", 0.0)
    await (await filled(tmp_path)).close()
    shutil.copy(tmp_path / "memory.db", tmp_path / "copy")
    database = open_database(tmp_path)
    await remove(database, 1, 3, 3)
    await load(database, tmp_path)
    await database.close()
    assert (tmp_path / "outline-1").exists(), "of a generation that the copy has not come to"
    shutil.copy(tmp_path / "copy", tmp_path / "memory.db")
    database = open_database(tmp_path)
    if is_cleaned:
        await memory_indexes.clean_memory_indexes(database)
        assert not (tmp_path / "outline-1").exists()
    await database.write(lambda tx: say(tx, "talk", ["I own a walrus."]))
    kept = VectorIndex(SHIPPED.dimension, folder=tmp_path)
    assert await search(database, kept, "walrus") == await search(database, VectorIndex(SHIPPED.dimension), "walrus")
    assert await look(database, kept.memory_indexes) == await look(database, MemoryIndexes(SHIPPED.dimension))
    await database.close()


@pytest.mark.parametrize("gone", ["session", "workspace", "message", "peer"])
async def test_nothing_of_what_is_deleted_stays_in_an_outline_on_the_disk(tmp_path: Path, gone: str) -> None:
    database = await filled(tmp_path)
    await load(database, tmp_path)
    assert (tmp_path / "outline-1").exists()

    def forget(tx: Tx) -> None:
        if gone == "message":
            first = list_messages(tx, "w", "talk", None, PageRequest()).rows[0].public_id
            remove_part(tx, begin_removal(tx, "w", "talk", first, first, NOW), NOW)
        elif gone == "peer":
            delete_peer(tx, "w", "ann", NOW)
        else:
            delete_session(tx, "w", "talk", NOW)
            if gone == "workspace":
                delete_session(tx, "w", "other", NOW)
                delete_workspace(tx, "w", NOW)

    await database.write(forget)
    worker = JobWorker(database, SystemClock(), EMBEDDER)
    while await worker.work_once():
        pass
    assert [path.name for path in tmp_path.glob("*outline*")] == []
    await database.close()


async def test_outline_without_what_was_deleted_is_kept_again(tmp_path: Path) -> None:
    database = await filled(tmp_path)
    memory_indexes = MemoryIndexes(SHIPPED.dimension, folder=tmp_path)
    for _ in range(2):
        await database.read(lambda tx: memory_indexes.load(tx, 1))
        before = (tmp_path / "outline-1").read_bytes()
    await database.write(lambda tx: purge_session(tx, get_session(tx, "w", "other").id, NOW))
    await database.read(lambda tx: memory_indexes.load(tx, 1))
    assert not (tmp_path / "outline-1").exists(), "it was written a moment ago"
    again = MemoryIndexes(SHIPPED.dimension, folder=tmp_path)
    await database.read(lambda tx: again.load(tx, 1))
    assert (tmp_path / "outline-1").stat().st_size < len(before)
    await database.close()


@pytest.mark.processes
async def test_what_a_crash_left_of_outlines_is_gone_after_the_next_start(tmp_path: Path) -> None:
    database = await filled(tmp_path)
    await load(database, tmp_path)
    good = (tmp_path / "outline-1").read_bytes()
    (tmp_path / "outline-77").write_bytes(good)  # of a workspace that is not there
    (tmp_path / ".outline-abc").write_bytes(good[:100])
    (tmp_path / "outline-notes.txt").write_text("not ours")
    await database.close()
    with running(tmp_path):
        await eventually(lambda: _listed(tmp_path), lambda names: names == ["outline-1", "outline-notes.txt"])


async def _listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*outline*"))


async def test_search_goes_by_words_while_a_long_history_is_read_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_indexes, "MAX_SEARCH_READ_ROWS", 5)
    monkeypatch.setattr(memory_indexes, "WAITING", memory_indexes.count_newer(5))
    database = await filled(tmp_path)
    index = VectorIndex(SHIPPED.dimension)
    loading = Loading(database, index.memory_indexes, SystemClock())

    async def found(text: str) -> list[str]:
        rows = await database.read(lambda tx: search_messages(tx, index, SearchArea(1), question(text), None, 1))
        return [row.content for row in rows]

    assert await found("apiculture") == [], "no message holds the word, and no meaning is known yet"
    assert await found("bees") == ["I keep bees."]
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    assert len(await found("apiculture")) == 1
    assert await found("bees") == ["I keep bees."]
    await loading.close()
    await database.close()


async def test_two_processes_find_the_same_while_a_third_writes(tmp_path: Path) -> None:
    writer = await filled(tmp_path)
    readers = [(open_database(tmp_path), VectorIndex(SHIPPED.dimension)) for _ in range(2)]

    async def found(reader: tuple[SqliteFile, VectorIndex]) -> list[int]:
        database, index = reader
        asked = question("who keeps bees and owns number 7")
        return await database.read(
            lambda tx: [row.id for row in search_messages(tx, index, SearchArea(1), asked, None, 20)]
        )

    for round_ in range(5):
        writing = asyncio.create_task(
            writer.write(lambda tx, n=round_: say(tx, f"s{n}", [f"I keep {n} bees.", "They own number 7."]))  # type: ignore[misc]
        )
        await asyncio.gather(*(found(reader) for reader in readers))
        await writing
        one, other = [await found(reader) for reader in readers]
        assert one == other
        assert one == await found((writer, VectorIndex(SHIPPED.dimension))), "as if nothing were kept"
    for database, _ in readers:
        await database.close()
    await writer.close()
