"""Servers between which memories are transferred."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from tests.memory_server.serving import Served, ending, inside, start, start_module
from tests.transfer.filling import fill

NOBODY = "(webhook) failed: DeliveryError: the name cannot be resolved"
"""Logged when a queue gets empty while a workspace has a webhook: its host exists nowhere."""


@pytest.fixture(scope="session")
def old(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The source server."""
    with ending(start(tmp_path_factory.mktemp("old")), expected=NOBODY) as served:
        yield served


@pytest.fixture(scope="session")
def new(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The target server."""
    with ending(start(tmp_path_factory.mktemp("new")), expected=NOBODY) as served:
        yield served


@pytest.fixture(scope="session")
def other(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that offers only the public API."""
    folder = tmp_path_factory.mktemp("other")
    with ending(start_module(["tests.transfer.plain_honcho", str(folder)], folder)) as served:
        yield served


@pytest.fixture
def workspace(request: pytest.FixtureRequest) -> str:
    """A workspace name that no other test uses."""
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60] + "-" + uuid.uuid4().hex[:8]


@pytest.fixture
def filled(old: Served, workspace: str) -> str:
    """A workspace of the source server that contains every kind of item."""
    with inside(old, workspace) as http:
        fill(http)
    return workspace
