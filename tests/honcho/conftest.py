"""Fixtures that give every Honcho test a separate user folder, so that none reads the developer's files or
variables."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes.honcho.plugin import HonchoPlugin
from tests.conftest import Ran
from tests.honcho.between import Between
from tests.honcho.configuring import Machine
from tests.honcho.misbehaving import Misbehaving
from tests.honcho.recalling import Recalling
from tests.honcho.writing import Arrived, make_writer
from tests.memory_server.serving import Served, running
from tests.slow.conftest import base_url as base_url

VARIABLES = ("HONCHO_API_KEY", "HONCHO_BASE_URL", "HONCHO_ENVIRONMENT", "HONCHO_LOGGING", "HERMES_HONCHO_HOST")


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A user's folder, which HOME points to."""
    made = Machine(tmp_path / "ann")
    made.folder.mkdir()
    monkeypatch.setenv("HOME", str(made.folder))
    monkeypatch.setenv("LOGNAME", "ann")
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.fixture(scope="session")
def server(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A memory server of our kind."""
    with running(tmp_path_factory.mktemp("memory")) as served:
        yield served


@pytest.fixture
def between(server: Served) -> Iterator[Between]:
    """A proxy between client and server."""
    with Between(server.url) as made:
        yield made


@pytest.fixture(params=["ours", "another"])
async def proxy(request: pytest.FixtureRequest, server: Served) -> AsyncIterator[Misbehaving]:
    """A misbehaving server: ours, or one without idempotency keys."""
    async with Misbehaving(server.url, is_foreign=request.param == "another").served() as made:
        yield made


@pytest.fixture
def workspace(request: pytest.FixtureRequest) -> str:
    """A separate workspace for the test."""
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60] + "-" + uuid.uuid4().hex[:8]


@pytest.fixture
def arrived(server: Served, workspace: str) -> Arrived:
    """The contents of the workspace."""
    return Arrived(server, workspace)


@pytest.fixture
def recalling(machine: Machine, server: Served, between: Between, workspace: str) -> Recalling:
    """A home whose memory is a separate workspace of the server."""
    return Recalling(machine, server, between, workspace)


@pytest.fixture
def commanded(recalling: Recalling, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the recalling host, with Honcho chosen, for commands."""
    recalling.machine.home.mkdir(parents=True, exist_ok=True)
    (recalling.machine.home / "config.yaml").write_text("memory:\n  provider: honcho\n")
    monkeypatch.setenv("HERMES_HOME", str(recalling.machine.home))
    return recalling.machine.home


@pytest.fixture
async def writer(machine: Machine) -> AsyncIterator[Callable[..., HonchoPlugin]]:
    """A factory of plugins that write to a server (`make_writer`); closes them in the end."""
    made: list[HonchoPlugin] = []

    def make(url: str, *given: Any, **configuration: Any) -> HonchoPlugin:
        made.append(make_writer(machine, url, *given, **configuration))
        return made[-1]

    yield make
    for plugin in made:
        await plugin.shutdown(0.0)


@pytest.fixture
def chosen(home: Path, hermes: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The honcho.json of a home with Honcho at an unreachable server. The working directory is a folder `work`."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert hermes("config", "set", "memory.provider", "honcho").code == 0
    path = home / "honcho.json"
    path.write_text('{"baseUrl": "http://127.0.0.1:9"}', encoding="utf-8")
    return path
