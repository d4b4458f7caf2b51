"""Limits, status codes and error bodies of the API, with requests that no SDK would send."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from hermes.memory_server.api.faults import STATUS
from hermes.memory_server.faults import Fault
from tests.memory_server.serving import Served

NESTED: dict[str, Any] = {"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}


def say(content: str = "hi", **more: Any) -> dict[str, Any]:
    return {"messages": [{"content": content, "peer_id": "ann", **more}]}


PAIR = {"observer": "ann", "observed": "ann"}
OF_ANN = {"content": "c", "observer_id": "ann", "observed_id": "ann"}
REFUSED: list[tuple[str, str, Any, int]] = [
    ("POST", "/peers", {"id": ""}, 422),
    ("POST", "/peers", {"id": "a b"}, 422),
    ("POST", "/peers", {"id": "x" * 513}, 422),
    ("POST", "/peers", {"id": "ann", "metadata": {str(n): n for n in range(101)}}, 422),
    ("POST", "/peers", {"id": "ann", "metadata": NESTED}, 422),
    ("POST", "/peers", {"id": "ann", "metadata": {"a": [2**63]}}, 422),
    ("POST", "/peers", {}, 422),
    ("POST", "/peers", [1, 2], 422),
    ("PUT", "/peers/a%20b", {}, 422),
    ("POST", "/sessions/talk/messages", say("x" * 25_001), 422),
    ("POST", "/sessions/talk/messages", {"messages": []}, 422),
    ("POST", "/sessions/talk/messages", {"messages": say()["messages"] * 101}, 422),
    ("POST", "/sessions/talk/messages", say(created_at="soon"), 422),
    ("POST", "/sessions/talk/messages", say("\ud800"), 422),
    ("POST", "/sessions", {"id": "s", "configuration": {"summary": {"messages_per_short_summary": 5}}}, 422),
    (
        "POST",
        "/sessions",
        {"id": "s", "configuration": {"summary": {"messages_per_short_summary": 30, "messages_per_long_summary": 30}}},
        422,
    ),
    ("POST", "/sessions", {"id": "s", "configuration": {"reasoning": {"custom_instructions": "word " * 2100}}}, 422),
    ("POST", "/search", {"query": "x", "limit": 101}, 422),
    ("POST", "/search", {"query": "x", "limit": 0}, 422),
    ("POST", "/search", {"query": "x", "scope": "nowhere"}, 404),
    ("POST", "/conclusions", {"conclusions": [{"content": "", "observer_id": "a", "observed_id": "a"}]}, 422),
    ("POST", "/conclusions", {"conclusions": [{"content": "c", "observer_id": "no", "observed_id": "no"}]}, 404),
    ("POST", "/conclusions", {"conclusions": [{"content": "é " * 9000, "observer_id": "a", "observed_id": "a"}]}, 422),
    ("POST", "/conclusions/query", {"query": "x"}, 422),
    ("POST", "/conclusions/query", {"query": "x", "filters": {"observer": "a"}}, 422),
    ("POST", "/conclusions/query", {"query": "x", "distance": 2, "filters": PAIR}, 422),
    (
        "POST",
        "/conclusions/query",
        {"query": "x", "distance": -0.1, "filters": PAIR},
        422,
    ),
    ("POST", "/conclusions/query", {"query": "x", "top_k": 0, "filters": PAIR}, 422),
    ("POST", "/conclusions/query", {"query": "x", "top_k": 101, "filters": PAIR}, 422),
    ("POST", "/conclusions", {"conclusions": []}, 422),
    ("POST", "/conclusions", {"conclusions": [OF_ANN] * 101}, 422),
    ("POST", "/conclusions", {"conclusions": [{**OF_ANN, "content": "-" * 65_536}]}, 422),
    ("POST", "/conclusions", {"conclusions": [{**OF_ANN, "content": " word" * 8193}]}, 422),
    ("POST", "/scopes/x/sessions", {"session_ids": []}, 422),
    ("POST", "/scopes/x/sessions", {"session_ids": ["talk"] * 101}, 422),
    ("POST", "/sessions", {"id": "s", "scopes": ["x"] * 101}, 422),
    ("POST", "/peers/ann/representation", {"scope": ["x"] * 101}, 422),
    ("POST", "/peers/ann/representation", {"scope": []}, 422),
    ("POST", "/peers/ann/representation", {"scope": ["nowhere"]}, 404),
    ("POST", "/sessions", {"id": "a.b"}, 422),
    ("POST", "/sessions", {"id": "x" * 513}, 422),
    ("POST", "/sessions", {"id": "s", "peers": {"a b": {}}}, 422),
    ("POST", "/sessions/talk/peers", {"x" * 513: {}}, 422),
    ("POST", "/sessions", {"id": "s", "configuration": {"summary": {"messages_per_short_summary": 9}}}, 422),
    ("POST", "/sessions", {"id": "s", "configuration": {"summary": {"messages_per_long_summary": 19}}}, 422),
    ("POST", "/sessions", {"id": "s", "configuration": {"summary": {"messages_per_short_summary": 60}}}, 422),
    ("POST", "/sessions", {"id": "s", "configuration": {"summary": {"messages_per_long_summary": 20}}}, 422),
    ("POST", "/sessions", {"id": "s", "configuration": {"custom_instructions": " word" * 2001}}, 422),
    ("GET", "/conclusions/nothing", None, 404),
    ("DELETE", "/conclusions/nothing", None, 404),
    ("POST", "/peers/ann/chat", {"query": ""}, 422),
    ("POST", "/peers/ann/chat", {"query": "x" * 10_001}, 422),
    ("POST", "/peers/ann/chat", {"query": "x", "session_id": "nowhere"}, 404),
    ("POST", "/peers/ann/chat", {"query": "x", "filters": {"peer_id": "a"}}, 422),
    ("POST", "/peers/ann/chat", {"query": "x", "filters": {"session_id": "*"}}, 422),
    ("POST", "/peers/ann/chat", {"query": "x", "filters": {"session_id": "a"}, "session_id": "b"}, 422),
    ("POST", "/peers/ann/chat", {"query": "x", "response_format": {"type": "array"}}, 422),
    ("POST", "/peers/ann/chat", {"query": "x", "response_format": {"type": "object", "required": ["a"]}}, 422),
    ("POST", "/peers/ann/chat", {"query": "x", "response_format": {"type": "object", "properties": {"a": 1}}}, 422),
    ("POST", "/peers/ann/chat", {"query": "x", "reasoning_level": "extreme"}, 422),
    ("POST", "/peers/ann/chat", {"query": "x", "target": "nobody"}, 404),
    ("POST", "/chat", {"query": ""}, 422),
    ("POST", "/chat", {"query": "x", "session_id": "nowhere"}, 404),
    ("POST", "/chat", {"query": "x", "scope": "nowhere"}, 404),
    ("GET", "/peers/nobody/card", None, 404),
    ("GET", "/peers/nobody/context", None, 404),
    ("GET", "/sessions/talk/context?tokens=100001", None, 422),
    ("GET", "/sessions/talk/context?peer_perspective=ann", None, 422),
    ("GET", "/sessions/talk/context?peer_target=nobody", None, 404),
    ("GET", "/sessions/talk/context?peer_target=ann&scope=x&peer_perspective=ann", None, 422),
    ("GET", "/sessions/talk/context?peer_target=ann&sessions=other", None, 422),
    ("GET", "/sessions/talk/context?peer_target=ann&peer_perspective=nobody", None, 404),
    ("PUT", "/sessions/nowhere/peers", {"ann": {}}, 404),
    ("GET", "/sessions/talk/peers/nobody/config", None, 404),
    ("POST", "/schedule_dream", {"observer": "nobody", "dream_type": "omni"}, 404),
    ("POST", "/schedule_dream", {"observer": "ann", "dream_type": "wild"}, 422),
    ("POST", "/webhooks", {"url": "ftp://example.org"}, 422),
    ("POST", "/webhooks", {"url": "http://127.0.0.1/x"}, 422),
    ("POST", "/webhooks", {"url": "http://[::1]/x"}, 422),
    ("POST", "/webhooks", {"url": "http://[64:ff9b::7f00:1]/x"}, 422),
    ("POST", "/webhooks", {"url": "http://169.254.169.254/latest"}, 422),
    ("POST", "/webhooks", {"url": "https://example.org/" + "x" * 2048}, 422),
    ("DELETE", "/webhooks/nothing", None, 404),
    ("GET", "/scopes/nothing", None, 404),
    ("POST", "/scopes", {"id": "a.b"}, 422),
    ("PATCH", "/peers/ann", {}, 405),
    ("GET", "/no/such/route", None, 404),
    ("POST", "/peers/list?size=101", {}, 422),
    ("POST", "/peers/list?page=0", {}, 422),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), REFUSED)
def test_request_beyond_a_limit_is_refused_with_a_reason(
    http: httpx.Client, method: str, path: str, body: Any, status: int
) -> None:
    http.post("/sessions/talk/messages", json=say()).raise_for_status()
    content = None if body is None else json.dumps(body)
    answer = http.request(method, path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    detail = answer.json()["detail"]
    assert isinstance(detail, str) or all({"type", "loc", "msg"} <= set(problem) for problem in detail)


ALLOWED: list[tuple[str, str, Any, int]] = [
    ("POST", "/peers", {"id": "A-z_0" + "9" * 507}, 201),
    ("POST", "/peers", {"id": "x", "metadata": {str(n): n for n in range(100)}}, 201),
    ("POST", "/peers", {"id": "x", "metadata": NESTED["a"]}, 201),
    ("POST", "/peers", {"id": "x", "metadata": {"a": [[[[1]]]]}}, 201),
    ("POST", "/sessions", {"id": "x" * 512, "peers": {"y" * 512: {}}, "scopes": ["z"] * 100}, 201),
    ("POST", "/conclusions", {"conclusions": [OF_ANN] * 100}, 201),
    ("POST", "/conclusions", {"conclusions": [{**OF_ANN, "content": "-" * 65_535}]}, 201),
    ("POST", "/conclusions", {"conclusions": [{**OF_ANN, "content": " word" * 8192}]}, 201),
    ("POST", "/search", {"query": "x", "limit": 100}, 200),
    ("POST", "/search", {"query": "", "limit": 1}, 200),
    ("POST", "/conclusions/query", {"query": "x", "top_k": 100, "distance": 1, "filters": PAIR}, 200),
    ("POST", "/conclusions/query", {"query": "x", "top_k": 1, "distance": 0.0, "filters": PAIR}, 200),
    ("POST", "/peers/ann/chat", {"query": "x" * 10_000}, 200),
    ("POST", "/peers/ann/chat", {"query": "x", "reasoning_level": "max", "session_id": "talk"}, 200),
    ("POST", "/peers/ann/representation", {"max_conclusions": 100, "search_top_k": 100, "search_query": "x"}, 200),
    ("POST", "/peers/ann/representation", {"max_conclusions": 1, "search_top_k": 1, "search_max_distance": 0}, 200),
    ("GET", "/sessions/talk/context?tokens=100000&peer_target=ann&search_max_distance=1", None, 200),
    ("GET", "/sessions/talk/context?tokens=0&peer_target=ann&peer_perspective=ann", None, 200),
    ("POST", "/sessions", {"id": "s", "configuration": {"summary": {"messages_per_short_summary": 10}}}, 201),
    ("POST", "/sessions", {"id": "s", "configuration": {"summary": {"messages_per_long_summary": 21}}}, 201),
    ("POST", "/sessions", {"id": "s", "configuration": {"custom_instructions": " word" * 2000}}, 201),
    ("POST", "/schedule_dream", {"observer": "ann", "dream_type": "card_refresh", "observed": "ann"}, 204),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), ALLOWED)
def test_request_at_a_limit_is_taken(http: httpx.Client, method: str, path: str, body: Any, status: int) -> None:
    http.post("/sessions/talk/messages", json=say()).raise_for_status()
    answer = http.request(method, path, json=body)
    assert answer.status_code == status, answer.text


def test_metadata_beyond_its_limits_is_told_which(http: httpx.Client) -> None:
    for metadata, reason in (
        ({str(n): n for n in range(101)}, "Metadata exceeds maximum of 100 top-level keys"),
        (NESTED, "Metadata nesting exceeds maximum depth of 5"),
    ):
        problem = http.post("/peers", json={"id": "x", "metadata": metadata}).json()["detail"][0]
        assert reason in problem["msg"]
        assert problem["loc"] == ["body", "metadata"]


def test_text_is_measured_without_nul_and_told_in_characters(http: httpx.Client) -> None:
    made = http.post("/sessions/talk/messages", json=say("\0" + "x" * 25_000)).json()[0]
    assert made["content"] == "x" * 25_000
    problem = http.post("/sessions/talk/messages", json=say("x" * 25_001)).json()["detail"][0]
    assert (problem["type"], problem["loc"]) == ("string_too_long", ["body", "messages", 0, "content"])
    assert "25000 characters" in problem["msg"]
    empty = http.post("/conclusions", json={"conclusions": [{**OF_ANN, "content": "\0"}]}).json()["detail"][0]
    assert empty["type"] == "string_too_short"
    assert http.post("/peers/ann/chat", json={"query": "\0"}).status_code == 422


def test_limits_themselves_are_allowed(http: httpx.Client) -> None:
    longest = http.post("/sessions/talk/messages", json={"messages": say("word " * 5_000)["messages"] * 100})
    assert longest.status_code == 201
    assert http.post("/sessions/talk/messages", json=say("x" * 25_000)).status_code == 201
    assert http.post("/sessions/talk/messages", json=say("")).json()[0]["content"] == ""
    assert http.post("/peers", json={"id": "x" * 512}).status_code == 201
    assert http.post("/sessions/talk/messages/", json=say()).status_code == 201


def test_second_creation_answers_200_and_a_workspace_keeps_its_metadata(server: Served, workspace: str) -> None:
    with server.client() as client:
        first = client.post("/v3/workspaces", json={"id": workspace, "metadata": {"a": 1}})
        second = client.post("/v3/workspaces", json={"id": workspace, "metadata": {"b": 2}})
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == first.json()
    assert second.json()["metadata"] == {"a": 1}


def test_nul_is_stripped_everywhere(http: httpx.Client) -> None:
    made = http.post("/sessions/talk/messages", json=say("a\0b", metadata={"k": ["x\0y"]})).json()[0]
    assert (made["content"], made["metadata"]) == ("ab", {"k": ["xy"]})
    assert http.put("/peers/ann/card", json={"peer_card": ["l\0ine"]}).json() == {"peer_card": ["line"]}
    assert http.post("/search", json={"query": "a\0b"}).json()[0]["content"] == "ab"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("2026-01-02T03:04:05.25+02:00", "2026-01-02T01:04:05.250000Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z"),
        ("2026-01-02T03:04:05.000001Z", "2026-01-02T03:04:05.000001Z"),
        ("0999-01-02T03:04:05Z", "0999-01-02T03:04:05Z"),
    ],
)
def test_times_are_utc_with_microseconds_and_a_whole_second_has_none(http: httpx.Client, given: str, told: str) -> None:
    made = http.post("/sessions/talk/messages", json=say(created_at=given)).json()[0]
    assert made["created_at"] == told


def test_pages_tell_how_many_there_are(http: httpx.Client) -> None:
    for number in range(7):
        http.post("/peers", json={"id": f"p{number}"})
    page = http.post("/peers/list?page=3&size=3").json()
    assert [peer["id"] for peer in page["items"]] == ["p6"]
    assert (page["total"], page["page"], page["size"], page["pages"]) == (7, 3, 3, 3)
    last = http.post("/peers/list?size=2&reverse=true", json=None).json()
    assert [peer["id"] for peer in last["items"]] == ["p6", "p5"]
    assert http.post("/peers/list?page=99&size=3").json()["items"] == []
    assert http.post("/peers/list?size=7").json()["pages"] == 1
    assert http.post("/sessions/list").json() == {"items": [], "total": 0, "page": 1, "size": 50, "pages": 0}


def test_configuration_merges_and_keeps_keys_it_does_not_know(http: httpx.Client) -> None:
    http.post("/sessions", json={"id": "s", "configuration": {"mine": 1, "dream": {"enabled": False}}})
    merged = http.put("/sessions/s", json={"configuration": {"reasoning": {"enabled": False}}}).json()
    assert merged["configuration"] == {"mine": 1, "dream": {"enabled": False}, "reasoning": {"enabled": False}}
    http.post("/peers", json={"id": "ann"})
    refused = http.post("/schedule_dream", json={"observer": "ann", "dream_type": "omni", "session_id": "s"})
    assert refused.status_code == 400


@pytest.mark.parametrize(
    ("workspace_says", "session_says", "message_says", "queued"),
    [
        (None, None, None, 1),
        (False, None, None, 0),
        (False, True, None, 1),
        (True, False, None, 0),
        (False, False, True, 1),
        (None, None, False, 0),
    ],
)
def test_message_over_session_over_workspace(
    http: httpx.Client, workspace_says: bool | None, session_says: bool | None, message_says: bool | None, queued: int
) -> None:
    itself = str(http.base_url).rstrip("/")
    http.put(itself, json={"configuration": {"reasoning": {"enabled": workspace_says}}}).raise_for_status()
    http.post("/sessions", json={"id": "s", "configuration": {"reasoning": {"enabled": session_says}}})
    http.post("/sessions/s/messages", json=say(configuration={"reasoning": {"enabled": message_says}}))
    assert http.get("/queue/status").json()["total_work_units"] == queued


@pytest.mark.parametrize(
    ("peer_says", "session_says", "observed"), [(None, None, 1), (False, None, 0), (False, True, 1), (True, False, 0)]
)
def test_only_who_is_observed_is_reasoned_about(
    http: httpx.Client, peer_says: bool | None, session_says: bool | None, observed: int
) -> None:
    http.post("/peers", json={"id": "ann", "configuration": {} if peer_says is None else {"observe_me": peer_says}})
    http.post("/sessions", json={"id": "s", "peers": {"ann": {"observe_me": session_says}}}).raise_for_status()
    http.post("/sessions/s/messages", json=say()).raise_for_status()
    assert http.get("/queue/status").json()["total_work_units"] == observed


def test_file_of_a_wrong_type_or_size_is_refused(http: httpx.Client) -> None:
    def upload(name: str, content: bytes, kind: str) -> httpx.Response:
        return http.post("/sessions/s/messages/upload", files={"file": (name, content, kind)}, data={"peer_id": "ann"})

    assert upload("a.png", b"\x89PNG", "image/png").status_code == 415
    assert upload("a.txt", b"x" * 5_242_881, "text/plain").status_code == 413
    assert upload("a.json", b"{", "application/json").status_code == 422
    assert upload("a.pdf", b"%PDF-nonsense", "application/pdf").status_code == 422
    assert upload("a.json", b'{"b":1}', "application/json").json()[0]["content"] == '{"b": 1}'
    assert upload("a.txt", "Grüße".encode("latin-1"), "text/plain").json()[0]["content"] == "Grüße"
    assert upload("a.txt", "Grüße".encode("utf-16"), "text/plain; charset=utf-16").json()[0]["content"] == "Grüße"


@pytest.mark.contract("9.8")
def test_every_fault_has_a_status() -> None:
    kinds = {kind for fault in Fault.__subclasses__() for kind in (fault, *fault.__subclasses__())}
    assert set(STATUS) == kinds


@pytest.mark.contract("9.8")
def test_server_tells_of_itself(server: Served) -> None:
    with server.client() as client:
        assert client.get("/health").json()["status"] == "ok"
        assert "/v3/workspaces" in client.get("/openapi.json").json()["paths"]
        metrics = client.get("/metrics").text
    assert 'hermes_memory_requests_total{method="GET",path="/health",status="200"}' in metrics
    seconds = [line for line in metrics.splitlines() if line.startswith("hermes_memory_request_seconds_total")]
    assert all(float(line.rpartition(" ")[2]) > 0 for line in seconds)
    assert any('{method="GET",path="/health"}' in line for line in seconds)
