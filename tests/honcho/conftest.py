"""Every test of Honcho has a user's folder of its own: nothing reads the person's files or variables."""

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
    """A memory server of our own."""
    with running(tmp_path_factory.mktemp("memory")) as served:
        yield served


@pytest.fixture
def between(server: Served) -> Iterator[Between]:
    """What stands between a client and the server."""
    with Between(server.url) as made:
        yield made


@pytest.fixture(params=["ours", "another"])
async def proxy(request: pytest.FixtureRequest, server: Served) -> AsyncIterator[Misbehaving]:
    """A server that misbehaves: one of ours, or one that knows no keys."""
    async with Misbehaving(server.url, is_foreign=request.param == "another").served() as made:
        yield made


@pytest.fixture
def workspace(request: pytest.FixtureRequest) -> str:
    """A workspace of the test's own."""
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60] + "-" + uuid.uuid4().hex[:8]


@pytest.fixture
def arrived(server: Served, workspace: str) -> Arrived:
    """What is in it."""
    return Arrived(server, workspace)


@pytest.fixture
def recalling(machine: Machine, server: Served, between: Between, workspace: str) -> Recalling:
    """A home whose memory is a workspace of its own on the server."""
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
    """Makes plugins that write to a server (`make_writer`) and closes them."""
    made: list[HonchoPlugin] = []

    def make(url: str, *given: Any, **configuration: Any) -> HonchoPlugin:
        made.append(make_writer(machine, url, *given, **configuration))
        return made[-1]

    yield make
    for plugin in made:
        await plugin.shutdown(0.0)


@pytest.fixture
def chosen(home: Path, hermes: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home that has chosen Honcho on a server where nobody is; the terminal stands in a folder `work`. The file."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert hermes("config", "set", "memory.provider", "honcho").code == 0
    path = home / "honcho.json"
    path.write_text('{"baseUrl": "http://127.0.0.1:9"}', encoding="utf-8")
    return path
