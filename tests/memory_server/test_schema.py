"""The file: its tables equal those that the migrations make, and frequent queries use an index."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, select

from hermes.clock import SystemClock
from hermes.errors import StoreNewerError
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import FILE, HEAD, MIGRATIONS, open_database, open_for_work
from hermes.memory_server.db.sqlite import SqliteFile, driver
from hermes.memory_server.db.tables import metadata
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.engine.answers import KeyedRequest, forget_answers
from hermes.memory_server.engine.conclusions import list_concluded, list_conclusions, list_sources
from hermes.memory_server.engine.context import fill_window
from hermes.memory_server.engine.deletion import remove_part
from hermes.memory_server.engine.job_kinds import MessageRemovalJob
from hermes.memory_server.engine.jobs import claim_job, has_work
from hermes.memory_server.engine.messages import MessageDraft, append_messages, list_messages
from hermes.memory_server.engine.once import append_once
from hermes.memory_server.engine.paging import PageRequest
from hermes.memory_server.engine.recall import ConclusionChoice, View, choose
from hermes.memory_server.engine.sessions import get_session, list_sessions
from hermes.memory_server.engine.standing import find_standing
from hermes.memory_server.engine.worker import JobWorker
from tests.memory_server.floor import EMBEDDER, draft, new_index, question, search_messages
from tests.memory_server.storage import transaction

NOW = 1_700_000_000_000_000


@pytest_asyncio.fixture
async def filled(tmp_path: Path) -> AsyncIterator[Tx]:
    """Yield a transaction in a file with a few rows of every kind."""
    database = open_database(tmp_path)
    for session in range(3):
        drafts = [draft(f"I own house {n}.", f"peer{n % 3}") for n in range(30)]
        await database.write(partial(append_messages, workspace="w", session=f"s{session}", drafts=drafts, at=NOW))
    worker = JobWorker(database, SystemClock(), EMBEDDER)
    while await worker.work_once():
        pass
    await database.close()
    with transaction(tmp_path) as tx:
        yield tx


def test_newest_migration_is_the_one_that_the_code_expects() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


async def test_new_file_is_what_all_migrations_make_of_an_empty_one(tmp_path: Path) -> None:
    await open_database(tmp_path / "made").close()
    migrate(tmp_path / FILE)
    assert sorted(described(tmp_path / "made" / FILE)) == sorted(described(tmp_path / FILE))


def migrate(path: Path) -> None:
    """Upgrade an empty file to the newest version, one migration at a time."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    engine.dispose()


def described(path: Path) -> list[tuple[str, str]]:
    """Return the schema of the file, with normalized whitespace."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return [(name, re.sub(r"\s+", "", sql)) for name, sql in rows]


async def test_all_migrations_together_make_exactly_the_tables_of_the_code(tmp_path: Path) -> None:
    migrate(tmp_path / FILE)
    engine = create_engine(f"sqlite:///{tmp_path / FILE}")
    with engine.connect() as connection:
        own = {table.name for table in metadata.sorted_tables}
        context = MigrationContext.configure(
            connection, opts={"include_name": lambda name, kind, _parents: kind != "table" or name in own}
        )
        assert compare_metadata(context, metadata) == []
    engine.dispose()


@pytest.mark.skipif(os.name == "nt", reason="Windows allows no such name")
async def test_folder_may_have_a_name_that_means_something_in_a_url(tmp_path: Path) -> None:
    folder = tmp_path / "why? 100% #1"
    await open_database(folder).close()
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*.db")] == [folder.relative_to(tmp_path) / FILE]


@pytest.mark.contract("P1")
@pytest.mark.parametrize(("opened", "synchronous"), [(open_database, 2), (open_for_work, 1)])
async def test_requests_wait_for_the_disk_and_background_work_does_not(
    tmp_path: Path, opened: Callable[[Path], SqliteFile], synchronous: int
) -> None:
    database = opened(tmp_path)
    assert await database.look(lambda tx: tx.exec_driver_sql("PRAGMA synchronous").scalar()) == synchronous
    await database.close()


async def test_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    await open_database(tmp_path).close()
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    with pytest.raises(StoreNewerError):
        open_database(tmp_path)
    assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]
    connection.close()
    assert [path.name for path in tmp_path.iterdir()] == [FILE], "nobody has it open any more"


def keyed() -> MessageDraft:
    return replace(draft("I am here.", "peer1"), asked=KeyedRequest("message", "m", "d"))


def public_id(tx: Tx, table: str) -> str:
    """Return the public id of any row in session s1."""
    found = metadata.tables[table]
    return str(tx.execute(select(found.c.public_id).where(found.c.session_id == 2).limit(1)).scalar_one())


HOT: dict[str, Callable[[Tx], object]] = {
    "append": lambda tx: append_messages(tx, "w", "s1", [draft("I am here.", "peer1")], NOW),
    "list messages": lambda tx: list_messages(tx, "w", "s1", None, PageRequest()),
    "list messages with a filter": lambda tx: list_messages(tx, "w", "s1", {"peer_id": "peer1"}, PageRequest()),
    "list sessions": lambda tx: list_sessions(tx, "w", None, PageRequest()),
    "list sessions of a member": lambda tx: list_sessions(tx, "w", {"peer_id": "peer1"}, PageRequest()),
    "list sessions without a member": lambda tx: list_sessions(tx, "w", {"peer_id": {"ne": "peer1"}}, PageRequest()),
    "context": lambda tx: fill_window(tx, get_session(tx, "w", "s0"), 1000, with_summary=True),
    "search": lambda tx: search_messages(tx, new_index(), SearchArea(1), question("house"), None, 10),
    "search in a session": lambda tx: search_messages(
        tx, new_index(), SearchArea(1, (2,)), question("house"), None, 10
    ),
    "search by an author": lambda tx: search_messages(
        tx, new_index(), SearchArea(1, peer=2), question("house"), None, 10
    ),
    "search with a filter": lambda tx: search_messages(
        tx, new_index(), SearchArea(1), question("house"), {"peer_id": "peer1"}, 10
    ),
    "list messages by date": lambda tx: list_messages(
        tx, "w", "s1", {"created_at": {"gt": "2030-01-01"}}, PageRequest()
    ),
    "list messages by metadata": lambda tx: list_messages(tx, "w", "s1", {"metadata": {"a": 1}}, PageRequest()),
    "list messages by id": lambda tx: list_messages(tx, "w", "s1", {"id": ["x", "y"]}, PageRequest()),
    "search by date": lambda tx: search_messages(
        tx, new_index(), SearchArea(1), question("house"), {"created_at": {"gt": "2001-01-01"}}, 10
    ),
    "search by metadata": lambda tx: search_messages(
        tx, new_index(), SearchArea(1), question("house"), {"metadata": {"a": 1}}, 10
    ),
    "search as a peer": lambda tx: search_messages(
        tx, new_index(), SearchArea(1), question("house"), {"peer_perspective": "peer1"}, 10
    ),
    "representation": lambda tx: choose(
        tx, new_index(), View(1, 1), ConclusionChoice(question("house"), None, None, True, 25)
    ),
    "what always holds": lambda tx: find_standing(tx, [View(1, 1), View(1, 1, (2,))]),
    "list conclusions": lambda tx: list_conclusions(
        tx, "w", {"observer_id": "peer1", "observed_id": "peer1"}, PageRequest()
    ),
    "append with keys": lambda tx: append_once(tx, "w", "s1", [keyed()] * 2, NOW, KeyedRequest("messages", "k", "d")),
    "drop old answers": lambda tx: forget_answers(tx, NOW),
    "conclusions of a message": lambda tx: list_concluded(tx, "w", "s1", public_id(tx, "messages"), PageRequest()),
    "messages of a conclusion": lambda tx: list_sources(tx, "w", public_id(tx, "conclusions"), PageRequest()),
    "delete a message": lambda tx: remove_part(tx, MessageRemovalJob(2, 3, 3), NOW),
    "look for work": lambda tx: has_work(tx, "dream", NOW),
    "claim work": lambda tx: claim_job(tx, "me", "dream", NOW),
}


@pytest.mark.parametrize("name", [*HOT])
def test_hot_queries_scan_no_table(filled: Tx, name: str) -> None:
    scans: list[str] = []
    for statement in recorded(filled, HOT[name]):
        if statement.lstrip().upper().startswith(("SELECT", "UPDATE", "DELETE")):
            plan = driver(filled).execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
            scans += [f"{row[3]}: {statement}" for row in plan if is_scan(row[3])]
    assert scans == []


def is_scan(step: str) -> bool:
    """Return True for a scan of a whole table; virtual tables, one-row subqueries and constants do not count."""
    if not step.startswith("SCAN") or "VIRTUAL TABLE" in step or "CONSTANT ROW" in step:
        return False
    return "anon_" not in step and "USING" not in step


def recorded(tx: Tx, run: Callable[[Tx], object]) -> list[str]:
    """Return every statement that `run` executes, with its values, except internal ones of the text index."""
    sent: list[str] = []
    driver(tx).set_trace_callback(sent.append)
    run(tx)
    driver(tx).set_trace_callback(None)
    own = [statement for statement in sent if "message_index_" not in statement and "sqlite_sequence" not in statement]
    assert own
    return own
