"""A home without a memory server; one that runs at the end of a test is ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hermes.embedded.rendezvous import Place
from tests.embedded.clients import place_of


@pytest.fixture
def place(processes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The server's folder in an empty home, without the developer's environment."""
    own = ("HERMES_MEMORY_SERVER", "HERMES_MEMORY_DATA", "AUTH_", "HONCHO_", "WEBHOOK_")
    for name in [name for name in os.environ if name.startswith(own)]:
        monkeypatch.delenv(name)
    found = place_of(tmp_path / "home")
    yield found
    for process in servers(found):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def servers(place: Place) -> list[int]:
    """Return the background processes that serve a folder, or start to."""
    wanted = [b"hermes.cli.memory_background", bytes(place.home), bytes(place.folder)]
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().split(b"\0")[-4:-1] == wanted:
                found.append(int(path.parent.name))
    return found
