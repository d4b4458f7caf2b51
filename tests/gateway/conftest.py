"""A model and a gateway that several tests share; each test uses separate sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.processes import GatewayProcess, LoopbackModel, api_settings, echo_model, write_config


@pytest.fixture(scope="module")
def model(processes: None) -> Iterator[LoopbackModel]:
    """An echo model."""
    with echo_model() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(model: LoopbackModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway that serves the API without a key."""
    home = tmp_path_factory.mktemp("gateway") / "home"
    write_config(home, api_settings(model, api__connections=40))
    with GatewayProcess(home) as running:
        yield running


@pytest.fixture
def empty_home(tmp_path: Path) -> Path:
    """A home for a test's separate gateway."""
    return tmp_path / "home"
