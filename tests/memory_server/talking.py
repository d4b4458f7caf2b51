"""Typical requests to a memory server over plain HTTP, with clients that are relative to a workspace."""

from __future__ import annotations

import time
from typing import Any

import httpx


def say(http: httpx.Client, session: str, *texts: str, peer: str = "ann") -> list[dict[str, Any]]:
    body = {"messages": [{"content": text, "peer_id": peer} for text in texts]}
    answer = http.post(f"/sessions/{session}/messages", json=body)
    assert answer.status_code == 201, answer.text
    made: list[dict[str, Any]] = answer.json()
    return made


def conclude(http: httpx.Client, *contents: str, session: str | None = None) -> list[dict[str, Any]]:
    """Store conclusions of ann about herself."""
    http.post("/peers", json={"id": "ann"})
    new = [{"content": text, "observer_id": "ann", "observed_id": "ann", "session_id": session} for text in contents]
    answer = http.post("/conclusions", json={"conclusions": new})
    assert answer.status_code == 201, answer.text
    made: list[dict[str, Any]] = answer.json()
    return made


def ids(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


def itself(http: httpx.Client) -> str:
    return str(http.base_url).rstrip("/")


def settle(http: httpx.Client) -> None:
    """Wait until the queue is empty."""
    deadline = time.monotonic() + 120  # for a test that would hang
    while True:
        told = http.get("/queue/status").json()
        if told["pending_work_units"] + told["in_progress_work_units"] == 0:
            return
        assert time.monotonic() < deadline, told
        time.sleep(0.02)  # the server has no way to be waited for


def held(http: httpx.Client, peer: str, **asked: Any) -> str:
    answer = http.post(f"/peers/{peer}/representation", json=asked)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["representation"])
