"""Responses to clients without an SDK match the reference server: aliases, missing objects, shapes, texts."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.memory_server.serving import Served, inside
from tests.memory_server.talking import conclude, held, ids, itself, say, settle

pytestmark = pytest.mark.contract("9.1")
EMPTY_PAGE = {"items": [], "total": 0, "page": 1, "size": 50, "pages": 0}


@pytest.mark.parametrize("path", ["/v3/workspaces", "/peers", "/sessions"])
def test_name_means_the_same_as_id(http: httpx.Client, server: Served, workspace: str, path: str) -> None:
    url = f"{server.url}{path}" if path.startswith("/v3") else itself(http) + path
    first, second = (http.post(url, json={field: f"{workspace}-x"}) for field in ("name", "id"))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()


def test_peer_names_are_the_peers_of_a_session(http: httpx.Client) -> None:
    http.post("/sessions", json={"name": "talk", "peer_names": {"ann": {"observe_others": True}}}).raise_for_status()
    assert ids(http.get("/sessions/talk/peers")) == ["ann"]
    assert http.get("/sessions/talk/peers/ann/config").json() == {"observe_me": None, "observe_others": True}


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("/sessions", {"id": "s", "peer": {"ann": {}}}, "peers"),
    ("/sessions", {"id": "s", "peersNames": {"ann": {}}}, "peer_names"),
    ("/sessions", {"id": "s", "scope": ["x"]}, "scopes"),
    ("/sessions", {"id": "s", "metdata": {}}, "metadata"),
    ("/peers/list", {"filter": {"id": "ann"}}, "filters"),
    ("/search", {"query": "x", "Filters": {}}, "filters"),
    ("/peers/ann/representation", {"sessionId": "talk"}, "session_id"),
    ("/peers/ann/representation", {"session_name": "talk"}, "session_id"),
    ("/sessions/talk/messages", {"messages": [{"content": "x", "peer_id": "ann", "create_at": "2020"}]}, "created_at"),
]


@pytest.mark.parametrize(("path", "body", "meant"), MISTAKES)
def test_field_that_was_meant_to_be_ours_is_refused_and_not_dropped(
    http: httpx.Client, path: str, body: dict[str, Any], meant: str
) -> None:
    refused = http.post(path, json=body)
    assert refused.status_code == 422
    assert f"did you mean '{meant}'?" in refused.json()["detail"][0]["msg"]
    assert ids(http.post("/sessions/list")) == []


def test_unknown_field_is_ignored_and_two_spellings_of_one_field_must_agree(http: httpx.Client) -> None:
    made = http.post("/peers", json={"id": "ann", "name": "ann", "color": "red", "uid": "x", "is_active": True})
    assert made.status_code == 201
    assert http.post("/peers", json={"id": "ann", "name": "ben"}).status_code == 422


def test_card_about_a_peer_that_is_not_there_is_kept_and_makes_it(http: httpx.Client) -> None:
    assert http.put("/peers/ann/card?target=zed", json={"peer_card": ["Name: Zed"]}).status_code == 200
    assert http.get("/peers/ann/card?target=zed").json() == {"peer_card": ["Name: Zed"]}
    assert ids(http.post("/peers/list")) == ["ann", "zed"]
    assert http.put("/peers/ann/card?target=a%20b", json={"peer_card": []}).status_code == 422


def test_context_about_a_target_that_is_not_there_is_empty(http: httpx.Client) -> None:
    http.post("/peers", json={"id": "ann"})
    told = http.get("/peers/ann/context?target=nobody")
    assert told.status_code == 200
    assert told.json() == {"peer_id": "ann", "target_id": "nobody", "representation": "", "peer_card": None}
    assert http.get("/peers/nobody/context").status_code == 404
    assert ids(http.post("/peers/list")) == ["ann"]


@pytest.fixture
def scoped(http: httpx.Client) -> httpx.Client:
    """Let ben speak in three sessions, one of them in the scope work and one in the scope home."""
    for scope in ("work", "home"):
        http.post("/sessions", json={"id": scope, "scopes": [scope], "peers": {"ann": {}, "ben": {}}})
    for session, city in (("work", "Rome"), ("home", "Bonn"), ("else", "Oslo")):
        say(http, session, f"I live in {city}.", peer="ben")
    settle(http)
    return http


def cities(text: str | None) -> set[str]:
    return {city for city in ("Rome", "Bonn", "Oslo") if city in (text or "")}


def test_scopes_in_a_list_limit_what_the_peer_itself_holds_to_their_sessions(scoped: httpx.Client) -> None:
    own = {"content": "ben: I was in Rome before.", "observer_id": "ben", "observed_id": "ben", "session_id": "work"}
    scoped.post("/conclusions", json={"conclusions": [own]}).raise_for_status()
    limited = held(scoped, "ben", scope=["work"])
    assert ("before" in limited, cities(limited)) == (True, {"Rome"})
    assert "before" not in held(scoped, "ben", scope="work"), "a single scope holds what it observed itself"
    assert cities(held(scoped, "ben", scope=["work", "home"])) == {"Rome", "Bonn"}
    assert held(scoped, "nobody", scope=["work"]) == ""

    def ask(**asked: Any) -> set[str]:
        return cities(scoped.post("/peers/ben/chat", json={"query": "Where do I live?", **asked}).json()["content"])

    assert ask(scope=["work", "home"]) == {"Rome", "Bonn"}
    assert ask(scope="home") == {"Bonn"}
    assert ask() == {"Rome", "Bonn", "Oslo"}


def test_scope_in_a_context_can_be_limited_to_the_session(scoped: httpx.Client) -> None:
    scoped.post("/scopes/work/sessions", json={"session_ids": ["home"]}).raise_for_status()
    say(scoped, "home", "I also live in Oslo.", peer="ben")
    settle(scoped)

    def seen(**asked: str) -> set[str]:
        told = scoped.get("/sessions/work/context", params={"peer_target": "ben", "scope": "work", **asked})
        assert told.status_code == 200, told.text
        return cities(told.json()["peer_representation"])

    assert seen() >= {"Rome", "Oslo"}
    assert seen(limit_to_session="true") == {"Rome"}
    asked = {"peer_target": "ben", "scope": "work", "sessions": "work"}
    assert scoped.get("/sessions/work/context", params=asked).status_code == 422


READS: list[tuple[str, str, Any, Any]] = [
    ("POST", "/search", {"query": "x"}, []),
    ("POST", "/peers/ann/search", {"query": "x"}, []),
    ("POST", "/sessions/talk/search", {"query": "x"}, []),
    ("POST", "/peers/list", {}, EMPTY_PAGE),
    ("POST", "/sessions/list", {}, EMPTY_PAGE),
    ("POST", "/scopes/list", {}, EMPTY_PAGE),
    ("POST", "/conclusions/list", {}, EMPTY_PAGE),
    ("POST", "/conclusions/query", {"query": "x", "filters": {"observer": "ann", "observed": "ann"}}, []),
    ("POST", "/peers/ann/sessions", {}, EMPTY_PAGE),
    ("GET", "/sessions/talk/peers", None, EMPTY_PAGE),
    ("POST", "/sessions/talk/messages/list", {}, EMPTY_PAGE),
    ("GET", "/sessions/talk/summaries", None, {"id": "talk", "short_summary": None, "long_summary": None}),
    ("POST", "/peers/ann/representation", {}, {"representation": ""}),
]


@pytest.mark.parametrize("there", [True, False], ids=["empty workspace", "no workspace"])
@pytest.mark.parametrize(("method", "path", "body", "told"), READS)
def test_reading_where_something_is_missing_finds_nothing_and_makes_nothing(
    server: Served, workspace: str, method: str, path: str, body: Any, told: Any, there: bool
) -> None:
    with inside(server, workspace) as http:
        base = itself(http) if there else itself(http) + "-none"
        answer = http.request(method, base + path, json=body)
        assert (answer.status_code, answer.json()) == (200, told)
        if not there:
            assert http.delete(base).status_code == 404, "it must not have been made"
            if body is not None and path.endswith(("list", "search", "sessions", "query")):
                wrong = {**body, "filters": {**body.get("filters", {}), "no_such_key": 1}}
                refused = http.request(method, base + path, json=wrong)
                assert refused.status_code == (200 if path == "/scopes/list" else 422)


def test_queue_of_a_workspace_that_is_not_there_is_empty(server: Served, workspace: str) -> None:
    with server.client() as client:
        told = client.get(f"/v3/workspaces/{workspace}-none/queue/status").json()
    assert (told["total_work_units"], told["sessions"]) == (0, None)


def test_scope_has_a_card(http: httpx.Client) -> None:
    http.post("/scopes", json={"id": "x"}).raise_for_status()
    assert http.get("/peers/scope.x/card").json() == {"peer_card": None}
    assert http.put("/peers/scope.x/card", json={"peer_card": ["Our work"]}).status_code == 200
    assert http.put("/peers/scope.x/card?target=ann", json={"peer_card": ["Name: Ann"]}).status_code == 200
    assert http.get("/peers/scope.x/card").json() == {"peer_card": ["Our work"]}
    assert http.get("/peers/scope.x/card?target=ann").json() == {"peer_card": ["Name: Ann"]}
    assert http.put("/peers/scope.none/card", json={"peer_card": []}).status_code == 404


def test_scope_of_a_session_observes_and_is_not_observed(http: httpx.Client) -> None:
    http.post("/sessions", json={"id": "talk", "scopes": ["x"]}).raise_for_status()
    http.post("/scopes", json={"id": "other"}).raise_for_status()
    shown = http.get("/sessions/talk/peers/scope.x/config").json()
    assert shown == {"observe_me": False, "observe_others": True}
    for name in ("scope.other", "scope.none"):
        assert http.get(f"/sessions/talk/peers/{name}/config").status_code == 404


OF_ANN = {"content": "c", "observer_id": "ann"}
NOT_A_SCOPE: list[tuple[str, str, Any]] = [
    ("GET", "/peers/ann/context?target=scope.x", None),
    ("GET", "/peers/scope.x/context", None),
    ("GET", "/peers/ann/card?target=scope.x", None),
    ("PUT", "/peers/ann/card?target=scope.x", {"peer_card": ["a"]}),
    ("POST", "/peers/ann/representation", {"target": "scope.x"}),
    ("POST", "/peers/scope.x/representation", {}),
    ("POST", "/peers/ann/chat", {"query": "x", "target": "scope.x"}),
    ("POST", "/peers/scope.x/chat", {"query": "x"}),
    ("POST", "/schedule_dream", {"observer": "ann", "observed": "scope.x", "dream_type": "omni"}),
    ("POST", "/schedule_dream", {"observer": "scope.x", "dream_type": "omni"}),
    ("POST", "/conclusions", {"conclusions": [{**OF_ANN, "observed_id": "scope.x"}]}),
    ("GET", "/sessions/talk/context?peer_target=scope.x", None),
    ("GET", "/sessions/talk/context?peer_target=ann&peer_perspective=scope.x", None),
    ("DELETE", "/sessions/talk/peers", ["scope.x"]),
    ("PUT", "/sessions/talk/peers/scope.x/config", {"observe_others": False}),
]


MISSING = ("/conclusions", "/sessions/talk/context")
"""Routes on which an unused reserved name is a missing object, like any other name."""


@pytest.mark.parametrize(("method", "path", "body"), NOT_A_SCOPE)
@pytest.mark.parametrize("name", ["scope.x", "scope.none"])
def test_scope_is_refused_where_a_peer_is_asked_about(
    http: httpx.Client, method: str, path: str, body: Any, name: str
) -> None:
    http.post("/sessions", json={"id": "talk", "peers": {"ann": {}}, "scopes": ["x"]}).raise_for_status()
    asked = None if body is None else _named(body, name)
    status = 404 if name == "scope.none" and path.startswith(MISSING) else 422
    http.post("/peers", json={"id": "ann"}).raise_for_status()
    assert http.request(method, path.replace("scope.x", name), json=asked).status_code == status
    assert http.post(
        "/schedule_dream", json={"observer": "scope.x", "observed": "ann", "dream_type": "omni"}
    ).is_success


def _named(body: Any, name: str) -> Any:
    """Return the body with another scope in it."""
    if isinstance(body, dict):
        return {key: _named(value, name) for key, value in body.items()}
    if isinstance(body, list):
        return [_named(value, name) for value in body]
    return name if body == "scope.x" else body


@pytest.mark.parametrize("path", ["/peers/ann/representation", "/peers/ann/chat", "/chat"])
@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"scope": "x"}, 200),
        ({"scope": ["x"]}, 200),
        ({"scope": "x", "filters": {"session_id": "talk"}}, 422),
        ({"scope": ["x"], "filters": {}}, 422),
        ({"scope": "x", "session_id": "talk"}, 422),
        ({"scope": "scope.x"}, 422),
        ({"scope": ["x", "scope.x"]}, 422),
        ({"scope": "a b"}, 422),
        ({"scope": "x" * 507}, 422),
        ({"scope": ""}, 422),
        ({"scope": "none"}, 404),
    ],
)
def test_scope_stands_alone_and_under_its_own_name(
    http: httpx.Client, path: str, more: dict[str, Any], status: int
) -> None:
    http.post("/sessions", json={"id": "talk", "peers": {"ann": {}}, "scopes": ["x"]}).raise_for_status()
    body = {"query": "x", **more} if path.endswith("chat") else more
    assert http.post(path, json=body).status_code == status


def test_scope_with_a_bad_name_is_refused_or_missing(http: httpx.Client) -> None:
    for name in ("scope.x", "a b"):
        assert http.post("/scopes", json={"id": name}).status_code == 422
        assert http.post("/sessions", json={"id": "talk", "scopes": [name]}).status_code == 422
        assert http.post("/search", json={"query": "x", "scope": name}).status_code == 404
        assert http.get(f"/scopes/{name}").status_code == 404
        assert http.get("/sessions/s/context", params={"peer_target": "ann", "scope": name}).status_code == 404
    assert ids(http.post("/sessions/list")) == []


def test_webhook_for_a_missing_workspace_is_404_and_creates_nothing(server: Served, workspace: str) -> None:
    with server.client() as client:
        base = f"/v3/workspaces/{workspace}-none"
        missing = client.post(f"{base}/webhooks", json={"url": "https://example.org"})
        assert (missing.status_code, missing.json()) == (404, {"detail": f"Workspace {workspace}-none not found"})
        assert client.delete(base).status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/webhooks", {"url": "ftp://example.org"}),
        ("/search", {"query": "x", "limit": 101}),
        ("/peers/ann/chat", {"query": "x", "scope": "a b"}),
        ("/conclusions", {"conclusions": [{"content": "one " * 9000, "observer_id": "ann", "observed_id": "ann"}]}),
    ],
)
def test_detail_of_a_field_that_is_wrong_is_a_list(http: httpx.Client, path: str, body: Any) -> None:
    refused = http.post(path, json=body)
    assert refused.status_code == 422
    for problem in refused.json()["detail"]:
        assert [type(problem[part]) for part in ("type", "loc", "msg")] == [str, list, str]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/peers/list", {"filters": {"colour": "red"}}),
        ("/peers/ann/chat", {"query": "x", "filters": {"session_id": "*"}}),
        ("/peers/ann/chat", {"query": "x", "scope": "a", "session_id": "s"}),
        ("/peers/ann/chat", {"query": "x", "response_format": {"type": "array"}}),
        ("/conclusions/query", {"query": "x"}),
    ],
)
def test_detail_of_what_cannot_be_asked_is_a_text(http: httpx.Client, path: str, body: Any) -> None:
    refused = http.post(path, json=body)
    assert (refused.status_code, type(refused.json()["detail"])) == (422, str)


def test_numbers_that_explain_a_422_are_numbers(http: httpx.Client) -> None:
    (problem,) = http.post("/search", json={"query": "x", "limit": 101}).json()["detail"]
    assert problem["ctx"] == {"le": 100}
    (problem,) = http.get("/peers/ann/context?search_max_distance=1.5").json()["detail"]
    assert problem["ctx"] == {"le": 1.0}
    (problem,) = http.post("/peers", json={"id": "ann", "metdata": {}}).json()["detail"]
    assert "metadata" in problem["ctx"]["error"]


def test_texts_are_those_of_the_reference(http: httpx.Client, workspace: str) -> None:
    say(http, "talk", "I live in Malta.")
    http.post("/scopes", json={"id": "x"}).raise_for_status()
    missing = {
        "/peers/zed/card": "Peer zed",
        "/sessions/talk/peers/zed/config": "Peer zed in session talk",
        "/sessions/gone/peers/ann/config": "Session gone",
        "/sessions/talk/messages/m": "Message m",
        "/conclusions/c": "Conclusion c",
        "/scopes/y": "Scope y",
    }
    for path, what in missing.items():
        answer = http.get(path)
        assert (answer.status_code, answer.json()["detail"]) == (404, f"{what} not found in workspace {workspace}")
    many = {f"w{n}": {"observe_others": True} for n in range(11)}
    told = http.post("/sessions/talk/peers", json=many).json()["detail"]
    assert "11 observers" in told
    assert "Maximum allowed is 10 observers per session" in told
    assert "delete all sessions first" in http.delete(itself(http)).json()["detail"]
    (problem,) = http.post("/webhooks", json={"url": "example.org"}).json()["detail"]
    assert (problem["loc"], "Invalid URL format" in problem["msg"]) == (["body", "url"], True)
    assert http.get("/webhooks/test").json() is None
    assert http.delete("/sessions/talk").json() == {"message": "Session deleted successfully"}


def test_representation_ends_with_a_newline_wherever_it_is_shown(http: httpx.Client) -> None:
    conclude(http, "ann lives in Malta")
    shown = [
        held(http, "ann"),
        http.get("/peers/ann/context").json()["representation"],
        http.get("/sessions/talk/context?peer_target=ann").json()["peer_representation"],
    ]
    assert [text.endswith("ann lives in Malta\n") for text in shown] == [True] * 3


def test_explicit_null_for_the_number_of_conclusions_means_the_servers_own(http: httpx.Client) -> None:
    conclude(http, *(f"ann owns house number {n}" for n in range(60)))
    assert held(http, "ann").count("house") == 25
    assert held(http, "ann", max_conclusions=None).count("house") == 60
