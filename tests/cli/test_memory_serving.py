"""Starting a server: a failure ends it with one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.cli import memory_serving
from hermes.cli.memory_serving import ServingOptions, run
from hermes.embedded.place import Place
from hermes.embedded.rendezvous import read_rendezvous
from hermes.errors import MemoryServerError, StoreBusyError
from hermes.http_server import listen
from hermes.memory_server.api.server import Options
from hermes.memory_server.db.sqlite import SqliteFile


@pytest.fixture
def serving(tmp_path: Path) -> ServingOptions:
    return ServingOptions(Place(tmp_path / "memory", tmp_path), listen("127.0.0.1", 0, ""), Options(), "serve", "key")


@pytest.mark.contract("9.2")
def test_server_that_cannot_begin_ends_with_a_line_and_is_never_announced(
    serving: ServingOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_folder: Path) -> SqliteFile:
        raise StoreBusyError("it is locked")

    monkeypatch.setattr(memory_serving, "open_for_work", refuse)
    with pytest.raises(MemoryServerError, match="could not start"):
        run(serving)
    assert read_rendezvous(serving.place.rendezvous) is None


def test_server_that_cannot_be_announced_ends_with_a_line(serving: ServingOptions) -> None:
    serving.place.rendezvous.mkdir(parents=True)
    with pytest.raises(MemoryServerError, match="it is a folder, not a file"):
        run(serving)
