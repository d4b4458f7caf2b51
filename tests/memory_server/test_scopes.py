"""Scopes learn from their sessions: from the time a session is added until it is removed, and again after."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.memory_server.serving import inside, running
from tests.memory_server.talking import held, say, settle

pytestmark = [pytest.mark.contract("9.1"), pytest.mark.processes]
LINE = "ann: I live in Malta.\n"


def add(http: httpx.Client) -> None:
    """Add the session to the scope, and wait until earlier conclusions are copied."""
    assert http.post("/scopes/x/sessions", json={"session_ids": ["talk"]}).status_code == 204
    while http.get("/scopes/x/status").json()["backfill_status"]["talk"]["state"] == "pending":
        settle(http)


def remove(http: httpx.Client) -> None:
    assert http.delete("/scopes/x/sessions/talk").status_code == 204


def test_session_that_comes_back_into_a_scope_brings_what_was_said_in_it(http: httpx.Client) -> None:
    http.post("/scopes", json={"id": "x"}).raise_for_status()
    say(http, "talk", "I live in Malta.")
    settle(http)
    for _ in range(2):
        add(http)
        assert held(http, "ann", scope="x").endswith(LINE)
        remove(http)
        assert held(http, "ann", scope="x") == ""


def test_scope_learns_nothing_more_from_a_session_that_left_it(tmp_path: Path) -> None:
    with running(tmp_path, "--no-worker") as resting, inside(resting, "w") as http:
        http.post("/sessions", json={"id": "talk", "scopes": ["x"]}).raise_for_status()
        say(http, "talk", "I live in Malta.")
        remove(http)
    with running(tmp_path) as working, inside(working, "w") as http:
        settle(http)
        assert held(http, "ann").endswith(LINE)
        assert held(http, "ann", scope="x") == ""
        assert http.get("/queue/status", params={"observer_id": "scope.x"}).json()["total_work_units"] == 0
        add(http)
        assert held(http, "ann", scope="x").endswith(LINE)
