"""A request is answered alike whichever way it takes: straight to its function, or through FastAPI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from hermes.clock import SystemClock
from hermes.memory_server.api.app import create_app
from hermes.memory_server.api.server import Options
from hermes.memory_server.api.swift import ShortWay
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.engine.word_vectors import WordVectors

SHORT, LONG = "application/json", "application/json; charset=utf-8"
"""Only the first goes the short way."""
BODIES: dict[str, bytes] = {
    "right": b'{"query": "tea", "limit": 5}',
    "missing field": b'{"limit": 5}',
    "wrong kind": b'{"query": "tea", "limit": "many"}',
    "misspelt field": b'{"query": "tea", "limt": 5}',
    "no JSON": b'{"query": ',
    "nothing": b"",
    "no object": b"[1, 2]",
    "huge number": b'{"query": "tea", "limit": 99999999999999999999999999}',
    "deep": b"[" * 5000 + b"]" * 5000,
}


@pytest.mark.processes
@pytest.mark.parametrize("name", [*BODIES])
def test_body_is_answered_alike_on_both_ways(http: httpx.Client, name: str) -> None:
    short, long = (http.post("search", content=BODIES[name], headers={"content-type": kind}) for kind in (SHORT, LONG))
    assert (short.status_code, short.json()) == (long.status_code, long.json())
    assert short.is_success == (name == "right")


@pytest.mark.processes
@pytest.mark.parametrize("path", ["sessions//search", "peers//search", "search/", "//search", "sessions/a/b/search"])
def test_path_that_is_no_route_leads_nowhere(http: httpx.Client, path: str) -> None:
    answer = http.post(path, json={"query": "tea"})
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})


@pytest.mark.processes
def test_method_that_a_path_does_not_have_is_refused(http: httpx.Client) -> None:
    assert http.put("search", json={"query": "tea"}).status_code == 405


@pytest.mark.processes
def test_key_of_a_request_is_looked_at(http: httpx.Client) -> None:
    """It stands in a header that most requests do not have."""
    said: dict[str, Any] = {"messages": [{"content": "I like tea.", "peer_id": "anna"}]}
    first, again = (http.post("sessions/s/messages", json=said, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert first.json() == again.json()
    assert http.post("sessions/s/messages", json=said).json() != first.json()
    assert http.post("sessions/s/messages", json=said, headers={"Idempotency-Key": ""}).status_code == 422


def test_what_is_asked_most_goes_the_short_way(tmp_path: Path) -> None:
    app = create_app(
        lambda: open_database(tmp_path),
        clock=SystemClock(),
        options=Options(),
        embedder=WordVectors(),
        open_for_work=None,
    )
    short = [way.route for ways in ShortWay(app, app.routes)._ways.values() for way in ways if way.is_short]
    paths = {route.path.removeprefix("/v3/workspaces/{workspace_id}") for route in short}
    assert {"/health", "/search", "/conclusions/query", "/sessions/{session_id}/messages", "/conclusions"} <= paths
    assert all(_returns_response(route) for route in short), "FastAPI alone makes a response of something else"


def _returns_response(route: APIRoute) -> bool:
    return str(route.endpoint.__annotations__["return"]) == "Response"
