"""The filter language: what it finds, and what it refuses."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

PEOPLE: dict[str, dict[str, Any]] = {
    "ann": {"age": 30, "city": "Rome", "tags": ["a", "b"], "active": True, "deep": {"x": 1, "y": 2}},
    "ben": {"age": 40, "city": "rimini", "tags": ["b"], "active": False},
    "cid": {"age": "50", "city": None, "born": "2001-05-06"},
    "dan": {},
}


@pytest.fixture
def people(http: httpx.Client) -> httpx.Client:
    for name, metadata in PEOPLE.items():
        http.post("/peers", json={"id": name, "metadata": metadata}).raise_for_status()
    return http


def find(client: httpx.Client, filters: dict[str, Any]) -> str:
    answer = client.post("/peers/list", json={"filters": filters})
    assert answer.status_code == 200, answer.text
    return " ".join(peer["id"] for peer in answer.json()["items"])


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, "ann ben cid dan"),
        ({"id": "ann"}, "ann"),
        ({"id": ["ann", "dan"]}, "ann dan"),
        ({"id": {"in": []}}, ""),
        ({"id": "*"}, "ann ben cid dan"),
        ({"id": {"ne": "ann"}}, "ben cid dan"),
        ({"id": {"gte": "ben", "lt": "dan"}}, "ben cid"),
        ({"id": {"contains": "AN"}}, "ann dan"),
        ({"id": {"icontains": "n_"}}, ""),
        ({"id": None}, ""),
        ({"id": {"ne": None}}, "ann ben cid dan"),
        ({"created_at": {"gt": "2020-01-01"}}, "ann ben cid dan"),
        ({"created_at": {"lt": "2020-01-01T00:00:00"}}, ""),
        ({"metadata": {"age": 30}}, "ann"),
        ({"metadata": {"age": {"gt": 30}}}, "ben cid"),
        ({"metadata": {"age": {"gte": 30, "lte": 40}}}, "ann ben"),
        ({"metadata": {"city": {"icontains": "RIM"}}}, "ben"),
        ({"metadata": {"tags": ["b"]}}, "ann ben"),
        ({"metadata": {"tags": {"contains": ["a"]}}}, "ann"),
        ({"metadata": {"deep": {"y": 2}}}, "ann"),
        ({"metadata": {"active": False}}, "ben"),
        ({"metadata": {"active": 0}}, ""),
        ({"metadata": {"age": {"ne": 30}}}, "ben cid dan"),
        ({"metadata": {"age": {"in": [30, 40]}}}, "ann ben"),
        ({"metadata": {"born": {"gte": "2001-01-01"}}}, "cid"),
        ({"metadata": {"city": None}}, "cid"),
        ({"metadata": {}}, "ann ben cid dan"),
        ({"AND": [{"id": {"ne": "ann"}}, {"metadata": {"age": {"gt": 1}}}]}, "ben cid"),
        ({"OR": [{"id": "ann"}, {"id": "dan"}]}, "ann dan"),
        ({"OR": [{"id": "ann"}, {"AND": [{"id": "ben"}, {"NOT": [{"id": "ben"}]}]}]}, "ann"),
        ({"NOT": [{"metadata": {"age": {"gt": 30}}}]}, "ann dan"),
        ({"NOT": [{"id": "ann"}, {"id": "ben"}]}, "cid dan"),
        ({"id": "ann", "metadata": {"age": 40}}, ""),
    ],
)
def test_filter_finds(people: httpx.Client, filters: dict[str, Any], found: str) -> None:
    assert find(people, filters) == found


@pytest.mark.parametrize(
    "filters",
    [
        {"colour": "blue"},
        {"id": {"like": "a"}},
        {"id": {"gt": None}},
        {"id": 7},
        {"id": {"in": "ann"}},
        {"id": True},
        {"created_at": "yesterday"},
        {"created_at": 5},
        {"AND": {"id": "ann"}},
        {"OR": ["ann"]},
        {"metadata": {"age": {"gt": None}}},
        {"metadata": {"age": {"gt": [1]}}},
        {"AND": [{"AND": [{"AND": [{"AND": [{"AND": [{"id": "ann"}]}]}]}]}]},
        {"id": {"in": ["x"] * 1001}},
        {"id": 10**30},
    ],
)
def test_filter_that_means_nothing_is_refused_with_a_reason(http: httpx.Client, filters: dict[str, Any]) -> None:
    answer = http.post("/peers/list", json={"filters": filters})
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]


def test_messages_are_filtered_by_their_own_columns(http: httpx.Client) -> None:
    body = {"messages": [{"content": "one", "peer_id": "ann"}, {"content": "one two three", "peer_id": "ben"}]}
    http.post("/sessions/talk/messages", json=body).raise_for_status()

    def texts(filters: dict[str, Any]) -> list[str]:
        answer = http.post("/sessions/talk/messages/list", json={"filters": filters})
        assert answer.status_code == 200, answer.text
        return [message["content"] for message in answer.json()["items"]]

    assert texts({"token_count": {"gt": 1}}) == ["one two three"]
    assert texts({"peer_id": "ann"}) == ["one"]
    assert texts({"session_id": "other"}) == []
    assert http.post("/sessions/talk/messages/list", json={"filters": {"token_count": "1"}}).status_code == 422


def test_conclusions_are_filtered_by_raw_columns_too(http: httpx.Client) -> None:
    for name in ("ann", "ben"):
        http.post("/peers", json={"id": name})
    new = [{"content": f"fact {n}", "observer_id": "ann", "observed_id": "ben"} for n in range(3)]
    made = http.post("/conclusions", json={"observations": new}).json()

    def found(filters: dict[str, Any]) -> int:
        answer = http.post("/conclusions/list", json={"filters": filters})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["total"])

    assert found({"observer": "ann", "observed_id": "ben"}) == 3
    assert found({"observer": "ben"}) == 0
    assert found({"level": "explicit", "content": {"contains": "FACT 1"}}) == 1
    assert found({"id": {"in": [made[0]["id"], made[1]["id"]]}}) == 2
    assert found({"source_ids": {"contains": made[0]["id"]}}) == 0
    assert found({"session_id": None, "times_derived": {"gte": 1}}) == 3
    assert http.post("/conclusions/list", json={"filters": {"level": "wild"}}).status_code == 422
