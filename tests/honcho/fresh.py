"""An unconfigured home: its memory is Honcho on our own server, which stops with the test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from hermes.embedded.connect import connect, stop
from hermes.embedded.rendezvous import Place
from hermes.types import Json
from tests.cli.chatting import chat, environment
from tests.conftest import Ran
from tests.db.processes import ROOT
from tests.embedded.clients import client_of, place_of
from tests.left_behind import end_all
from tests.memory_server.talking import settle

UNSAID = {"HERMES_MEMORY_PROVIDER": "", "HERMES_MEMORY_SERVER_IDLE": "30"}
"""Unsets the variable that switches memory off in other tests."""


@dataclass(frozen=True)
class FreshHome:
    """A home, and the programs that run in it."""

    home: Path
    env: dict[str, str]

    @property
    def place(self) -> Place:
        return place_of(self.home)

    def chat(self, *arguments: str) -> Ran:
        return chat(self.env, *arguments, timeout=180)

    def hermes(self, *arguments: str) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "hermes", *arguments],
            cwd=ROOT, env=self.env, capture_output=True, text=True, check=False, timeout=180,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)

    def status(self) -> dict[str, Json]:
        found: dict[str, Json] = json.loads(self.hermes("memory", "status", "--json").out)
        return found

    def deliver(self) -> None:
        """Wait until memory has received everything and learned from it."""
        assert self.hermes("memory", "outbox", "deliver").code == 0
        with self.at_server() as http:
            settle(http)

    @contextmanager
    def at_server(self) -> Iterator[httpx.Client]:
        """Yield a plain client of the home's server, in its workspace."""
        with client_of(connect(self.place)) as client:
            client.base_url = client.base_url.join("/v3/workspaces/hermes")
            yield client

    def restart(self) -> None:
        """Stop the server; the next program that needs it starts another."""
        stop(self.place)


@contextmanager
def fresh_home(folder: Path, base_url: str | None = None, **more: str) -> Iterator[FreshHome]:
    """Create a home in a folder; an endpoint's URL gives it a model."""
    made = FreshHome(folder / "home", environment(folder / "home", base_url, **{**UNSAID, **more}))
    try:
        yield made
    finally:
        end_all(made.home)
