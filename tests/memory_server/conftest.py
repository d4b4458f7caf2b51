"""Fixtures: one server for all tests of a run, and a separate workspace for every test."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from honcho import Honcho

from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.postgres import WRITE, PostgresDatabase
from hermes.memory_server.engine import embedding
from tests.memory_server.sdk import Caller, connected
from tests.memory_server.serving import SECRET, Served, inside, running
from tests.memory_server.storage import FolderStorage, PostgresStorage, Storage, is_on_both, transaction
from tests.postgres import Postgres, shared_postgres


@pytest.fixture(autouse=True)
def embedding_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let background embedding start without waiting for an idle server."""
    monkeypatch.setattr(embedding, "QUIET_SECONDS", 0.0)


@pytest.fixture(scope="session")
def server(processes: None, storage: Storage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start a server without keys."""
    with running(tmp_path_factory.mktemp("memory"), *storage.options()) as served:
        yield served


@pytest.fixture(scope="session")
def guarded(processes: None, storage: Storage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start a server that requires keys."""
    variables = {"AUTH_USE_AUTH": "true", "AUTH_JWT_SECRET": SECRET}
    with running(tmp_path_factory.mktemp("guarded"), *storage.options(), **variables) as served:
        yield served


@pytest.fixture(scope="session")
def resting(processes: None, storage: Storage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start a server without background work: queued jobs stay as they are."""
    with running(tmp_path_factory.mktemp("resting"), "--no-worker", *storage.options()) as served:
        yield served


@pytest.fixture
def workspace(request: pytest.FixtureRequest) -> str:
    """Return a unique workspace name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60] + "-" + uuid.uuid4().hex[:8]


@pytest_asyncio.fixture
async def honcho(server: Served, workspace: str) -> AsyncIterator[Honcho]:
    """Return the official client, on a new workspace."""
    async with connected(server.url, workspace) as client:
        yield client


@pytest.fixture
def http(server: Served, workspace: str) -> Iterator[httpx.Client]:
    """Return an HTTP client whose paths are relative to a new workspace."""
    with inside(server, workspace) as client:
        yield client


@pytest.fixture
def quiet(resting: Served, workspace: str) -> Iterator[httpx.Client]:
    """Return a client like `http`, on a server without background work."""
    with inside(resting, workspace) as client:
        yield client


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Caller:
    """Return a caller of the SDK's methods, synchronous or asynchronous."""
    return Caller(in_async=request.param == "async")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "storage" in metafunc.fixturenames and is_on_both(metafunc.module.__name__, metafunc.function.__name__):
        kinds = ["folder", pytest.param("postgres", marks=pytest.mark.processes)]
        metafunc.parametrize("storage", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def postgres(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """Start the PostgreSQL server of a test run."""
    base = tmp_path_factory.getbasetemp()
    with shared_postgres(base.parent if base.name.startswith("popen-") else base) as server:
        yield server


@pytest.fixture(scope="session")
def storage(request: pytest.FixtureRequest) -> Storage:
    """Return the storage: a folder unless the test is parametrized for both."""
    if getattr(request, "param", "folder") == "folder":
        return FolderStorage()
    return PostgresStorage(request.getfixturevalue("postgres"))


@pytest_asyncio.fixture
async def tx(storage: Storage, tmp_path: Path) -> AsyncIterator[Tx]:
    """Open a transaction in a new memory."""
    opened = storage.open(tmp_path)
    if isinstance(opened, PostgresDatabase):
        with opened.transaction(WRITE) as connection:
            yield connection
        await opened.close()
        storage.remove(opened)
        return
    await opened.close()
    with transaction(tmp_path) as connection:
        yield connection


@pytest_asyncio.fixture
async def database(storage: Storage, tmp_path: Path) -> AsyncIterator[Database]:
    """Open a new memory."""
    opened = storage.open(tmp_path)
    yield opened
    await opened.close()
    storage.remove(opened)
