"""The filter language: its results, and its refusals."""

from __future__ import annotations

import sqlite3
from typing import Any

import httpx
import pytest

from hermes.memory_server.db.schema import FILE
from tests.memory_server.serving import Served

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
        ({"id": {"gt": "ann", "lte": "cid"}}, "ben cid"),
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
        ({"metadata": {"age": {"ne": "30"}}}, "ben cid dan"),
        ({"metadata": {"age": {"ne": 30.0}}}, "ben cid dan"),
        ({"metadata": {"age": {"gt": "30"}}}, "ben cid"),
        ({"metadata": {"age": {"lt": 50}}}, "ann ben"),
        ({"metadata": {"age": {"lte": 40}}}, "ann ben"),
        ({"metadata": {"active": {"ne": True}}}, "ben cid dan"),
        ({"metadata": {"age": {"in": ["*"]}}}, "ann ben cid dan"),
        ({"metadata": {"age": "*", "city": "Rome"}}, "ann"),
        ({"metadata": {"city": {"ne": None}}}, "ann ben"),
        ({"metadata": {"contains": {"city": "Rome"}}}, "ann"),
        ({"metadata": {"ne": None}}, "ann ben cid dan"),
        ({"metadata": {"city": None}}, "cid"),
        ({"metadata": {}}, "ann ben cid dan"),
        ({"AND": [{"id": {"ne": "ann"}}, {"metadata": {"age": {"gt": 1}}}]}, "ben cid"),
        ({"OR": [{"id": "ann"}, {"id": "dan"}]}, "ann dan"),
        ({"OR": [{"id": "ann"}, {"AND": [{"id": "ben"}, {"NOT": [{"id": "ben"}]}]}]}, "ann"),
        ({"NOT": [{"metadata": {"age": {"gt": 30}}}]}, "ann dan"),
        ({"NOT": [{"id": "ann"}, {"id": "ben"}]}, "cid dan"),
        ({"NOT": [{"id": "ann", "metadata": {"age": 30}}]}, "ben cid dan"),
        ({"NOT": []}, "ann ben cid dan"),
        ({"OR": []}, "ann ben cid dan"),
        ({"AND": []}, "ann ben cid dan"),
        ({"id": {"ne": "*", "in": ["ann", "*"]}}, "ann ben cid dan"),
        ({"id": "ann", "metadata": {"age": 40}}, ""),
        ({"AND": [{"AND": [{"AND": [{"AND": [{"AND": [{"id": "ann"}]}]}]}]}]}, "ann"),
        ({"OR": [{"id": "ann"}] * 500}, "ann"),
        ({"NOT": [{"metadata": {"age": {"gt": 30}}}] * 500}, "ann dan"),
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
        {"metadata": {"age": {"gt": 1, "like": 2}}},
        {"metadata": {"age": {"in": 30}}},
        {"metadata": {"gt": 5}},
        {"metadata": {"ne": {"a": 1}}},
        {"metadata": {"contains": "a"}},
        {"metadata": "a"},
        {"metadata": [1]},
        {"NOT": {"id": "ann"}},
        {"NOT": None},
        {"AND": [{"AND": [{"AND": [{"AND": [{"AND": [{"AND": [{"id": "ann"}]}]}]}]}]}]},
        {"OR": [{"id": "ann"}] * 501},
        {"metadata": {str(n): n for n in range(501)}},
        {"OR": [{"id": ["ann"] * 1000}] * 30},
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


def test_what_has_no_value_is_kept_when_a_value_is_not_wanted(http: httpx.Client) -> None:
    http.post("/sessions", json={"id": "talk", "peers": {"ann": {}}}).raise_for_status()
    pair = {"observer_id": "ann", "observed_id": "ann"}
    new = [{"content": "here", "session_id": "talk", **pair}, {"content": "anywhere", **pair}]
    http.post("/conclusions", json={"conclusions": new}).raise_for_status()

    def found(filters: dict[str, Any]) -> list[str]:
        answer = http.post("/conclusions/list", json={"filters": filters}).json()
        return [conclusion["content"] for conclusion in answer["items"]]

    assert found({"session_id": {"ne": "talk"}}) == found({"NOT": [{"session_id": "talk"}]}) == ["anywhere"]
    assert found({"session_id": {"ne": "other"}}) == ["anywhere", "here"]
    assert found({"session_id": None}) == found({"NOT": [{"session_id": {"ne": None}}]}) == ["anywhere"]
    assert found({"session_id": {"gt": "a"}}) == ["here"]


def test_conclusions_are_found_by_what_they_were_drawn_from(http: httpx.Client, server: Served) -> None:
    http.post("/peers", json={"id": "ann"})
    new = [{"content": f"fact {n}", "observer_id": "ann", "observed_id": "ann"} for n in range(3)]
    made = [found["id"] for found in http.post("/conclusions", json={"conclusions": new}).json()]
    connection = sqlite3.connect(server.folder / FILE)  # nothing draws conclusions from others yet
    for sources, public_id in (('["a", "b"]', made[0]), ('["b"]', made[1])):
        connection.execute("UPDATE conclusions SET source_ids = ? WHERE public_id = ?", (sources, public_id))
    connection.commit()
    connection.close()

    def found(wanted: Any) -> list[str]:
        answer = http.post("/conclusions/list?reverse=true", json={"filters": {"source_ids": wanted}})
        assert answer.status_code == 200, answer.text
        return [item["id"] for item in answer.json()["items"]]

    assert found("a") == found({"contains": "a"}) == made[:1]
    assert found("b") == made[:2]
    assert found(["a", "b"]) == made[:1]
    assert found({"in": ["a", "c"]}) == made[:1]
    assert found({"in": ["a", "b"]}) == made[:2]
    assert found({"in": []}) == []
    assert found(None) == made[2:]
    assert found({"ne": None}) == made[:2]
    assert found("*") == found(["*"]) == found({"in": ["*"]}) == made
    for wrong in (7, {"gt": "a"}, {"ne": "a"}, [7], {"in": [7]}, {"x": 1}):
        assert http.post("/conclusions/list", json={"filters": {"source_ids": wrong}}).status_code == 422


ROOMS = {"empty": "", "solo": "ann", "pair": "ann ben", "crowd": "cid ben ann"}


@pytest.fixture
def rooms(http: httpx.Client) -> httpx.Client:
    """Create sessions with several members; dan was in all of them and left."""
    for name, inside in ROOMS.items():
        members: dict[str, Any] = {peer: {} for peer in ["dan", *inside.split()]}
        http.post("/sessions", json={"id": name, "peers": members}).raise_for_status()
        http.request("DELETE", f"/sessions/{name}/peers", json=["dan"]).raise_for_status()
    return http


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("ann", "solo pair crowd"),
        ("ben", "pair crowd"),
        ("cid", "crowd"),
        ("dan", ""),
        ("*", "empty solo pair crowd"),
        (None, "empty"),
        (["cid", "nobody"], "crowd"),
        (["cid", "*"], "empty solo pair crowd"),
        ([], ""),
        ({"in": ["ann", "cid"]}, "solo pair crowd"),
        ({"in": []}, ""),
        ({"ne": "ben"}, "empty solo"),
        ({"ne": None}, "solo pair crowd"),
        ({"ne": "*"}, "empty solo pair crowd"),
        ({"ne": "cid", "in": ["ben"]}, "pair"),
        ({"contains": "BE"}, "pair crowd"),
        ({"icontains": "c"}, "crowd"),
        ({"gt": "ann", "lt": "cid"}, "pair crowd"),
        ({"gt": "ben"}, "crowd"),
        ({"contains": "*"}, "empty solo pair crowd"),
        ({}, "empty solo pair crowd"),
    ],
)
def test_session_is_found_by_any_of_its_members(rooms: httpx.Client, wanted: Any, found: str) -> None:
    for path in ("/sessions/list", "/peers/dan/sessions"):
        answer = rooms.post(path, json={"filters": {"peer_id": wanted}})
        assert answer.status_code == 200, answer.text
        assert " ".join(session["id"] for session in answer.json()["items"]) == found
    turned = rooms.post("/sessions/list", json={"filters": {"NOT": [{"peer_id": wanted}]}}).json()["items"]
    assert {session["id"] for session in turned} == set(ROOMS) - set(found.split())


@pytest.mark.parametrize("wanted", [7, {"like": "a"}, {"like": "*"}, {"gt": None}, {"ne": 7}, {"in": "ann"}, [None]])
def test_member_that_cannot_be_one_is_refused(http: httpx.Client, wanted: Any) -> None:
    assert http.post("/sessions/list", json={"filters": {"peer_id": wanted}}).status_code == 422


def test_member_of_another_workspace_is_not_meant(http: httpx.Client, server: Served) -> None:
    with server.client() as outside:
        outside.post("/v3/workspaces/elsewhere/sessions", json={"id": "talk", "peers": {"ann": {}}}).raise_for_status()
    http.post("/sessions", json={"id": "talk", "peers": {"ben": {}}}).raise_for_status()
    assert http.post("/sessions/list", json={"filters": {"peer_id": "ann"}}).json()["total"] == 0


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("solo", {"ann"}),
        ("pair", {"ann", "ben"}),
        ("empty", set()),
        (["pair", "crowd"], {"ann", "ben", "cid"}),
        ({"ne": "pair"}, {"cid", "dan"}),
        (None, {"dan"}),
        ({"contains": "CROW"}, {"ann", "ben", "cid"}),
    ],
)
def test_peer_is_found_by_the_sessions_it_is_in(rooms: httpx.Client, wanted: Any, found: set[str]) -> None:
    answer = rooms.post("/peers/list", json={"filters": {"session_id": wanted}})
    assert answer.status_code == 200, answer.text
    assert {peer["id"] for peer in answer.json()["items"]} == found


def test_peer_is_not_found_by_a_deleted_session(rooms: httpx.Client) -> None:
    rooms.delete("/sessions/solo").raise_for_status()
    assert rooms.post("/peers/list", json={"filters": {"session_id": "solo"}}).json()["total"] == 0


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"session_id": "talk"}, ["here", "there"]),
        ({"session_id": "walk"}, ["there"]),
        ({"peer_id": "ben"}, ["there"]),
        ({"peer_id": {"ne": "ben"}}, ["here"]),
        ({"is_active": True}, ["here", "there"]),
        ({"is_active": False}, []),
    ],
)
def test_workspace_is_found_by_its_sessions_and_peers(
    server: Served, filters: dict[str, Any], found: list[str]
) -> None:
    with server.client() as outside:
        for workspace, session, peer in (("here", "talk", "ann"), ("there", "talk", "ben"), ("there", "walk", "ann")):
            body = {"id": session, "peers": {peer: {}}}
            outside.post(f"/v3/workspaces/{workspace}/sessions", json=body).raise_for_status()
        answer = outside.post("/v3/workspaces/list", json={"filters": {"id": ["here", "there"], **filters}})
    assert answer.status_code == 200, answer.text
    assert [workspace["id"] for workspace in answer.json()["items"]] == found


def test_every_peer_is_active(people: httpx.Client) -> None:
    assert find(people, {"is_active": True}) == "ann ben cid dan"
    assert find(people, {"is_active": {"ne": True}}) == ""
    assert people.post("/peers/list", json={"filters": {"is_active": "yes"}}).status_code == 422
