"""The same fixtures as a folder's, over databases of one PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from hermes.memory_server.db.address import DatabaseAddress
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.postgres import WRITE
from hermes.memory_server.db.schema import open_postgres
from tests.memory_server.serving import SECRET, Served, running
from tests.postgres import Postgres, shared_postgres

HERE = Path(__file__).parent
SAMPLE = ("test_routes.py", "test_sdk.py", "test_search.py", "test_jobs.py", "test_filters.py", "test_idempotency.py")
OWN = ("test_postgres.py", "test_many_processes.py", "conftest.py", "__init__.py")
OF_FILES = frozenset({"test_copy_of_a_session_is_found_by_its_words_and_its_meaning"})
"""Facts of files alone: the index of words is asked in the words of SQLite."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """`make test` runs a sample, `make postgres` (HERMES_POSTGRES=1) everything that holds on both."""
    name = collection_path.name
    is_wanted = os.environ.get("HERMES_POSTGRES") == "1" or name in (*SAMPLE, *OWN) or collection_path.is_dir()
    return None if is_wanted else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if item.path.parent != HERE or item.name not in OF_FILES]


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    base = tmp_path_factory.getbasetemp()
    with shared_postgres(base.parent if base.name.startswith("popen-") else base) as server:
        yield server


@pytest.fixture(scope="session")
def server(processes: None, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without keys."""
    with running(tmp_path_factory.mktemp("memory"), "--database", postgres.create()) as served:
        yield served


@pytest.fixture(scope="session")
def guarded(processes: None, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks for keys."""
    variables = {"AUTH_USE_AUTH": "true", "AUTH_JWT_SECRET": SECRET}
    with running(tmp_path_factory.mktemp("guarded"), "--database", postgres.create(), **variables) as served:
        yield served


@pytest.fixture(scope="session")
def resting(processes: None, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that does no background work."""
    with running(tmp_path_factory.mktemp("resting"), "--no-worker", "--database", postgres.create()) as served:
        yield served


@pytest_asyncio.fixture
async def database(postgres: Postgres) -> AsyncIterator[Database]:
    """A new open database."""
    opened = open_postgres(DatabaseAddress.parse(postgres.create(), "test"))
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def tx(postgres: Postgres) -> AsyncIterator[Tx]:
    """A transaction in a new database; nothing of it is kept."""
    opened = open_postgres(DatabaseAddress.parse(postgres.create(), "test"))
    with opened._transaction(WRITE) as connection:
        yield connection
    await opened.close()
