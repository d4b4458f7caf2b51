"""Fixtures for tests at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from hermes.types import Json
from tests.cli.screen import Chat, Screen, plain_env
from tests.llm.beside import beside
from tests.llm.loopback import LoopbackServer

ECHO = {"echo": True}


@pytest.fixture
def chat(home: Path, processes: None) -> Iterator[Chat]:
    """Return a function that starts `hermes chat` with a scripted model: `chat({"says": …}, …)`. Further turns are
    echoed."""
    with ExitStack() as servers:

        def start(
            *answers: Json, columns: int = 80, env: dict[str, str] | None = None, more: Sequence[str] = ()
        ) -> Screen:
            script = {"answers": answers, "then": ECHO}
            server = servers.enter_context(beside(LoopbackServer.from_script(script)))
            model = {"OPENAI_BASE_URL": server.base_url, "HERMES_MODEL": "loop-1"}
            return Screen("chat", *more, env={**plain_env(home), **model, **(env or {})}, columns=columns)

        yield start
