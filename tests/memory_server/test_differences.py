"""Intended differences from the reference server: rows of the table in `docs/memory-server.md`, executed."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.memory_server.talking import ids, itself, say

pytestmark = pytest.mark.contract("9.1")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/sessions/talk/context?tokens=-1", None, 422),
        ("POST", "/webhooks", {"url": "http://localhost/x"}, 422),
        ("POST", "/schedule_dream", {"observer": "nobody", "dream_type": "omni"}, 404),
        ("POST", "/sessions/talk/messages/list", {"filter": {"peer_id": "ann"}}, 422),
        ("PUT", "/peers/ann", b'{"metadata": {"a": 18446744073709551616}}', 422),
        ("PUT", "/peers/ann", b'{"metadata": {"a": NaN}}', 422),
        ("PUT", "/peers/ann", b'{"metadata": {"a": "\\ud800"}}', 422),
    ],
)
def test_request_that_the_reference_takes_is_refused(
    http: httpx.Client, method: str, path: str, body: Any, status: int
) -> None:
    say(http, "talk", "I like tea.")
    content = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = http.request(method, path, headers={"Content-Type": "application/json"}, **content)
    assert answer.status_code == status, answer.text


def test_broken_metadata_of_an_upload_is_refused(http: httpx.Client) -> None:
    file = {"file": ("a.txt", b"hello", "text/plain")}
    sent = http.post("/sessions/talk/messages/upload", files=file, data={"peer_id": "ann", "metadata": "{"})
    assert (sent.status_code, http.post("/sessions/list").json()["total"]) == (422, 0)


def test_messages_are_filtered_by_id(http: httpx.Client) -> None:
    first, _ = say(http, "talk", "one", "two")
    assert ids(http.post("/sessions/talk/messages/list", json={"filters": {"id": first["id"]}})) == [first["id"]]


def test_search_in_a_scope_and_sessions_finds_what_is_in_both(http: httpx.Client) -> None:
    for session in ("in", "out"):
        say(http, session, "I like tea.")
    http.post("/scopes", json={"id": "x"}).raise_for_status()
    http.post("/scopes/x/sessions", json={"session_ids": ["in"]}).raise_for_status()
    found = {
        name: [row["session_id"] for row in http.post("/search", json={"query": "tea", "scope": "x", **more}).json()]
        for name, more in {
            "scope": {},
            "both": {"filters": {"session_id": "in"}},
            "other": {"filters": {"session_id": "out"}},
        }.items()
    }
    assert found == {"scope": ["in"], "both": ["in"], "other": []}


def test_search_for_nothing_finds_nothing(http: httpx.Client) -> None:
    say(http, "talk", "I like tea.")
    assert [http.post("/search", json={"query": query}).json() for query in ("", " \t")] == [[], []]


def test_metadata_that_is_not_equal_may_be_missing(http: httpx.Client) -> None:
    for peer, metadata in {"one": {"a": "x"}, "two": {"a": "y"}, "three": {}}.items():
        http.post("/peers", json={"id": peer, "metadata": metadata}).raise_for_status()
    assert ids(http.post("/peers/list", json={"filters": {"metadata": {"a": {"ne": "x"}}}})) == ["two", "three"]


def test_time_without_a_zone_is_utc_and_answered_with_one(http: httpx.Client) -> None:
    said = {"content": "hi", "peer_id": "ann", "created_at": "2026-01-02T03:04:05"}
    (made,) = http.post("/sessions/talk/messages", json={"messages": [said]}).json()
    assert made["created_at"] == "2026-01-02T03:04:05Z"


def test_copy_of_a_session_holds_its_own_workspace_alone(http: httpx.Client, workspace: str) -> None:
    say(http, "talk", "mine")
    with httpx.Client(base_url=f"{itself(http)}-other", timeout=60) as other:
        say(other, "talk", "not mine")
    copy = http.post("/sessions/talk/clone").json()["id"]
    (message,) = http.post(f"/sessions/{copy}/messages/list").json()["items"]
    assert (message["content"], message["workspace_id"]) == ("mine", workspace)


def test_deleted_session_is_hidden_at_once_and_queue_counts_jobs(quiet: httpx.Client) -> None:
    say(quiet, "talk", *(f"I like tea {n}." for n in range(11)))
    assert quiet.get("/queue/status").json()["total_work_units"] == 2, "ten messages are one job"
    assert quiet.delete("/sessions/talk").status_code == 202
    assert quiet.post("/search", json={"query": "tea"}).json() == []


def test_nul_is_taken_out_of_texts_as_the_reference_does(http: httpx.Client) -> None:
    (made,) = say(http, "talk", "I like\0 tea.")
    assert made["content"] == "I like tea."
    assert [row["id"] for row in http.post("/search", json={"query": "te\0a"}).json()] == [made["id"]]
