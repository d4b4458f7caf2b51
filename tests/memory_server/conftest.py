"""One server for all tests of a run; every test has a workspace of its own."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from honcho import Honcho
from sqlalchemy import create_engine, event

from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.functions import register_functions
from hermes.memory_server.db.schema import FILE, open_database
from hermes.memory_server.engine import embedding
from tests.memory_server.sdk import Caller, connected
from tests.memory_server.serving import SECRET, Served, inside, running


@pytest.fixture(autouse=True)
def embedding_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finer vectors do not wait until a server is not used."""
    monkeypatch.setattr(embedding, "QUIET_SECONDS", 0.0)


@pytest.fixture(scope="session")
def server(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without keys."""
    with running(tmp_path_factory.mktemp("memory")) as served:
        yield served


@pytest.fixture(scope="session")
def guarded(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks for keys."""
    with running(tmp_path_factory.mktemp("guarded"), AUTH_USE_AUTH="true", AUTH_JWT_SECRET=SECRET) as served:
        yield served


@pytest.fixture(scope="session")
def resting(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that does no background work: what waits for it stays as it is."""
    with running(tmp_path_factory.mktemp("resting"), "--no-worker") as served:
        yield served


@pytest.fixture
def workspace(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60] + "-" + uuid.uuid4().hex[:8]


@pytest_asyncio.fixture
async def honcho(server: Served, workspace: str) -> AsyncIterator[Honcho]:
    """The official client on a workspace of its own."""
    async with connected(server.url, workspace) as client:
        yield client


@pytest.fixture
def http(server: Served, workspace: str) -> Iterator[httpx.Client]:
    """A plain client whose paths begin inside the workspace, which exists."""
    with inside(server, workspace) as client:
        yield client


@pytest.fixture
def quiet(resting: Served, workspace: str) -> Iterator[httpx.Client]:
    """As `http`, on a server that leaves background work alone."""
    with inside(resting, workspace) as client:
        yield client


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Caller:
    """Calls the SDK's methods in one of its two ways."""
    return Caller(in_async=request.param == "async")


@contextmanager
def transaction(folder: Path) -> Iterator[Tx]:
    """A transaction in the folder's file; nothing of it is kept."""
    engine = create_engine(f"sqlite:///{folder / FILE}", isolation_level="AUTOCOMMIT")
    event.listen(engine, "connect", lambda raw, _record: register_functions(raw))
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        yield connection
    engine.dispose()


@pytest_asyncio.fixture
async def tx(tmp_path: Path) -> AsyncIterator[Tx]:
    """A transaction in a new file."""
    await open_database(tmp_path).close()
    with transaction(tmp_path) as connection:
        yield connection


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """The open database of a new folder."""
    opened = open_database(tmp_path)
    yield opened
    await opened.close()
