"""A gateway with the API, its model and its memory, for tests of requests that name no session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.processes import (
    GatewayProcess,
    LoopbackModel,
    api_settings,
    echo_model,
    rows,
    wait_until,
    write_config,
)
from tests.honcho.chat_programs import ChatProgram
from tests.honcho.writing import Arrived
from tests.memory_server.serving import Served, inside
from tests.memory_server.talking import settle

WORKSPACE = "api-memory"
TABLES = ("sessions", "messages", "hermes_queue", "hermes_routes", "hermes_api_turns", "hermes_usage")


@dataclass
class Place:
    """A gateway with the API, its model and its memory."""

    gateway: GatewayProcess
    model: LoopbackModel
    server: Served
    workspace: str

    @property
    def url(self) -> str:
        return self.gateway.url

    def chat(self, model: str = "hermes:full", **more: Any) -> ChatProgram:
        return ChatProgram(self.url, model, **more)

    def remembered(self) -> list[tuple[str, str]]:
        """Return speaker and text of every message on the memory server, after all deliveries."""
        self.learn()
        arrived = Arrived(self.server, self.workspace)
        return [one for session in arrived.sessions() for one in arrived.said(session)]

    def told(self, text: str) -> list[str]:
        """Return the peers that sent this text, according to the memory server."""
        return [peer for peer, content in self.remembered() if content == text]

    def learn(self) -> None:
        waiting = "SELECT 1 FROM hermes_queue WHERE queue LIKE 'memory:%' AND state = 'waiting'"
        wait_until(lambda: not self.gateway.rows(waiting))
        with inside(self.server, self.workspace) as http:
            settle(http)

    def asked(self) -> list[dict[str, str]]:
        """The messages of the last request to the model."""
        return self.model.requests()[-1]

    def kept(self) -> tuple[list[object], list[str], list[tuple[str, str]]]:
        """Return the row counts of the store, and the sessions and messages on the memory server."""
        remembered = self.remembered()
        counts = [rows(self.gateway.home, f"SELECT count(*) FROM {table}")[0][0] for table in TABLES]
        return counts, Arrived(self.server, self.workspace).sessions(), remembered

    def said_in(self, chat: ChatProgram, role: str = "user") -> list[object]:
        """Return the active messages in the session of a chat."""
        query = "SELECT content FROM messages WHERE session_id = ? AND role = ? AND active = 1 ORDER BY id"
        return [row[0] for row in rows(self.gateway.home, query, chat.session_id, role)]


def settings(model: LoopbackModel, **more: object) -> dict[str, object]:
    given: dict[str, object] = {"memory__provider": "honcho", "memory__deadline": 25.0, "memory__first_deadline": 25.0}
    return api_settings(model, api__users="guests", **{**given, **more})


def open_home(folder: Path, server: Served, model: LoopbackModel, workspace: str, **more: object) -> GatewayProcess:
    write_config(folder / "home", settings(model, **more))
    honcho = {"baseUrl": server.url, "workspace": workspace, "peerName": "ann", "aiPeer": "bot"}
    (folder / "home" / "honcho.json").write_text(json.dumps(honcho), encoding="utf-8")
    env = {"HOME": str(folder), "LOGNAME": "ann", "HERMES_MEMORY_PROVIDER": "honcho"}
    return GatewayProcess(folder / "home", env=env)


@pytest.fixture(scope="module")
def place(processes: None, server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One gateway for all tests of a module; each test uses different words."""
    with echo_model() as model, open_home(tmp_path_factory.mktemp("api"), server, model, WORKSPACE) as gateway:
        yield Place(gateway, model, server, WORKSPACE)
