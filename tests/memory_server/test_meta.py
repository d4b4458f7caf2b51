"""Properties of a folder: the embedder of its vectors, and the format of its rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.errors import StoreEmbedderError, StoreNewerError
from hermes.memory_server.db.schema import FILE, HEAD, open_database
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.embedder import SHIPPED, Space
from hermes.memory_server.engine.messages import append_messages
from hermes.memory_server.engine.worker import JobWorker
from tests.memory_server.floor import EMBEDDER, draft, new_index, question, search_messages
from tests.memory_server.older import BEFORE_TRUTH

NOW = 1_700_000_000_000_000
OTHER = Space("somebody/else", 768)


def said_in(folder: Path) -> dict[str, str]:
    with closing(sqlite3.connect(folder / FILE)) as file:
        return dict(file.execute("SELECT name, value FROM meta").fetchall())


def change(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / FILE)) as file, file:
        file.executescript(statement)


@pytest.mark.contract("9.10")
@pytest.mark.parametrize("space", [SHIPPED, OTHER])
async def test_new_folder_says_which_embedder_it_was_made_with(tmp_path: Path, space: Space) -> None:
    await open_database(tmp_path, space).close()
    expected = {"format": "1", "embedder": space.embedder, "dimension": str(space.dimension)}
    assert said_in(tmp_path) == expected
    await open_database(tmp_path, space).close()
    assert said_in(tmp_path) == expected


@pytest.mark.contract("9.10")
@pytest.mark.parametrize("space", [OTHER, Space(SHIPPED.embedder, 512), Space("somebody/else", SHIPPED.dimension)])
async def test_folder_of_another_embedder_is_refused_by_name_and_left_alone(tmp_path: Path, space: Space) -> None:
    await open_database(tmp_path).close()
    before = said_in(tmp_path)
    with pytest.raises(StoreEmbedderError, match=f"{SHIPPED.embedder}.*{space.embedder}"):
        open_database(tmp_path, space)
    assert said_in(tmp_path) == before


async def test_folder_in_a_format_that_we_do_not_know_is_refused(tmp_path: Path) -> None:
    await open_database(tmp_path).close()
    change(tmp_path, "UPDATE meta SET value = '2' WHERE name = 'format'")
    with pytest.raises(StoreNewerError, match="format 2"):
        open_database(tmp_path)


def as_version_one(folder: Path) -> None:
    """Turn a folder back into one of the first version."""
    change(
        folder,
        f"{';'.join(BEFORE_TRUTH)};"
        "DROP TABLE finer_vectors; DROP TABLE finer_progress; DROP TABLE finer_again; DROP TABLE departures;"
        "DROP TABLE model_calls; DROP TABLE dreams; DROP TABLE merges; DROP TABLE merge_rows; DROP TABLE answers;"
        "DROP TABLE conclusion_messages; DROP TABLE conclusion_versions;"
        "ALTER TABLE sessions DROP COLUMN removals; DROP INDEX conclusions_drawn;"
        "DROP INDEX conclusions_standing; ALTER TABLE conclusions DROP COLUMN standing;"
        "DROP TABLE meta; DROP INDEX jobs_open_by_kind; DROP TABLE message_facts;"
        "DROP INDEX messages_by_session_date; DROP INDEX messages_by_workspace_date; DROP INDEX memberships_observing;"
        "ALTER TABLE message_vectors DROP COLUMN traits; ALTER TABLE message_vectors DROP COLUMN said_at;"
        "INSERT INTO message_index (message_index) VALUES ('rebuild');"
        "CREATE INDEX jobs_open ON jobs (id) WHERE state IN ('pending', 'running');"
        "UPDATE alembic_version SET version_num = '0001'",
    )


@pytest.mark.contract("9.10")
async def test_folder_of_the_first_version_opens_works_on_and_says_its_embedder(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    said = [draft("I keep bees.", "ann"), draft("我妹妹开了一家面包店。", "ann")]
    await database.write(lambda tx: append_messages(tx, "w", "s", said, NOW))
    known = await database.read(lambda tx: tx.exec_driver_sql("SELECT traits, said_at FROM message_vectors").all())
    await database.close()
    as_version_one(tmp_path)
    database = open_database(tmp_path)
    assert await JobWorker(database, SystemClock(), EMBEDDER).work_once(), "work that waited is done"
    found = await database.read(lambda tx: search_messages(tx, new_index(), SearchArea(1), question("bees"), None, 5))
    assert found[0].content == "I keep bees."
    found = await database.read(lambda tx: search_messages(tx, new_index(), SearchArea(1), question("面包"), None, 5))
    assert found[0].content == said[1].content
    assert known == await database.read(
        lambda tx: tx.exec_driver_sql("SELECT traits, said_at FROM message_vectors").all()
    )
    assert (
        await database.read(lambda tx: tx.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()) == HEAD
    )
    await database.close()
    assert said_in(tmp_path)["embedder"] == SHIPPED.embedder


async def test_first_version_folder_is_refused_with_another_embedder_and_unchanged(tmp_path: Path) -> None:
    await open_database(tmp_path).close()
    as_version_one(tmp_path)
    with pytest.raises(StoreEmbedderError):
        open_database(tmp_path, OTHER)
    with closing(sqlite3.connect(tmp_path / FILE)) as file:
        assert file.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
        assert file.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").fetchone() == (0,)
