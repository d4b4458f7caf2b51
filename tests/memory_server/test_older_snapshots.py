"""A search with an older snapshot sees conclusions as they were then, and caches none of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import select

from hermes.clock import SystemClock
from hermes.memory_server.db import tables
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.db.sqlite import SqliteFile
from hermes.memory_server.embedder import to_blob
from hermes.memory_server.engine.conclusions import (
    NewConclusion,
    create_conclusions,
    delete_conclusion,
    find_collection,
    list_conclusions,
)
from hermes.memory_server.engine.merging import begin_merge, begin_undoing
from hermes.memory_server.engine.messages import append_messages
from hermes.memory_server.engine.paging import PageRequest
from hermes.memory_server.engine.peers import get_peer
from hermes.memory_server.engine.recall import View, query_views
from hermes.memory_server.engine.vectors import VectorHit, VectorIndex
from hermes.memory_server.engine.worker import JobWorker
from tests.memory_server.floor import EMBEDDER, draft, embed, new_index, question
from tests.memory_server.storage import transaction

NOW = time.time_ns() // 1000
FIGS, SECRET = "I like figs.", "I was in the hospital."
ASKED = "who was in the hospital"
pytestmark = pytest.mark.contract("9.1")


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteFile]:
    """Open a database in which the AI holds one conclusion about bob and one about ann."""
    opened = open_database(tmp_path)

    def fill(tx: Tx) -> None:
        for peer in ("ai", "ann", "bob"):
            append_messages(tx, "w", "s", [draft(f"Hello, {peer} here.", peer)], NOW)
        new = [NewConclusion(text, "ai", peer, to_blob(embed(text))) for text, peer in ((FIGS, "bob"), (SECRET, "ann"))]
        create_conclusions(tx, "w", new, NOW)

    await opened.write(fill)
    yield opened
    await opened.close()


async def work(database: SqliteFile) -> None:
    worker = JobWorker(database, SystemClock(), EMBEDDER)
    while await worker.work_once():
        pass


def kept(tx: Tx, index: VectorIndex, observed: str) -> list[VectorHit]:
    """Return the cached rows of what the AI holds about a peer."""
    collection = find_collection(tx, get_peer(tx, "w", "ai").id, get_peer(tx, "w", observed).id)
    assert collection is not None
    return index.nearest_conclusions(tx, collection, embed(ASKED), 10)


def told(tx: Tx, index: VectorIndex, observed: str) -> list[str]:
    view = View(get_peer(tx, "w", "ai").id, get_peer(tx, "w", observed).id)
    return [row.content for row in query_views(tx, index, [view], question(ASKED), 10, None)]


async def test_search_in_an_older_snapshot_does_not_revert_an_undone_merge(
    database: SqliteFile, tmp_path: Path
) -> None:
    index = new_index()
    merge = await database.write(lambda tx: begin_merge(tx, "w", "ann", "bob", NOW))
    await work(database)
    assert SECRET in await database.read(lambda tx: told(tx, index, "bob"))
    with transaction(tmp_path) as older:
        assert older.execute(select(tables.conclusions.c.id)).first() is not None  # its snapshot begins
        await database.write(lambda tx: begin_undoing(tx, "w", merge.public_id, NOW))
        await work(database)
        assert await database.read(lambda tx: told(tx, index, "bob")) == [FIGS]
        told(older, index, "bob")
    assert await database.read(lambda tx: told(tx, index, "bob")) == [FIGS]
    assert await database.read(lambda tx: kept(tx, index, "bob") == kept(tx, new_index(), "bob"))
    assert await database.read(lambda tx: told(tx, index, "ann")) == [SECRET]


async def test_search_in_an_older_snapshot_puts_no_deleted_conclusion_back(
    database: SqliteFile, tmp_path: Path
) -> None:
    index = new_index()
    assert len(await database.read(lambda tx: kept(tx, index, "ann"))) == 1
    with transaction(tmp_path) as older:
        [secret] = [row for row in list_conclusions(older, "w", None, PageRequest()).rows if row.content == SECRET]
        await database.write(lambda tx: delete_conclusion(tx, "w", secret.public_id, 0))
        assert await database.read(lambda tx: kept(tx, index, "ann")) == []
        told(older, index, "ann")
    assert await database.read(lambda tx: kept(tx, index, "ann")) == []


async def test_search_in_an_older_snapshot_does_not_see_a_later_merge(database: SqliteFile, tmp_path: Path) -> None:
    index = new_index()
    with transaction(tmp_path) as older:
        assert older.execute(select(tables.conclusions.c.id)).first() is not None  # its snapshot begins
        await database.write(lambda tx: begin_merge(tx, "w", "ann", "bob", NOW))
        await work(database)
        assert SECRET in await database.read(lambda tx: told(tx, index, "bob"))
        assert told(older, index, "bob") == [FIGS], "in it ann is somebody else"
