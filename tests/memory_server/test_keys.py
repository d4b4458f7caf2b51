"""Each key permits exactly what the table says, and no response reveals more than its holder may know."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import jwt
import pytest

from tests.memory_server.keys_table import FIELDS, OBJECTS, ROUTES, Rule, W
from tests.memory_server.serving import SECRET, Served, running
from tests.memory_server.shapes import described
from tests.memory_server.talking import say, settle
from tests.plain_http import PLAIN

pytestmark = [pytest.mark.contract("9.1"), pytest.mark.processes]
OPEN = {"GET /health"}
KEYS: dict[str, dict[str, object] | None] = {
    "none": None,
    "admin": {"ad": True},
    "workspace": {"w": "w"},
    "peer": {"w": "w", "p": "alice"},
    "session": {"w": "w", "s": "talk"},
}
REST = {
    "message_id": "m",
    "conclusion_id": "c",
    "scope_id": "none",
    "endpoint_id": "e",
    "section": "peers",
    "merge_id": "g",
    "dream_id": "g",
    "supersession_id": "h",
}
PLACES: dict[str, dict[str, str]] = {
    "own": {"workspace_id": "w", "peer_id": "alice", "session_id": "talk", **REST},
    "co-member's": {"workspace_id": "w", "peer_id": "carol", "session_id": "aside", **REST},
    "stranger's": {"workspace_id": "w", "peer_id": "bob", "session_id": "else", **REST},
    "other workspace's": {"workspace_id": "v", "peer_id": "alice", "session_id": "talk", **REST},
}
SAID = [
    ("w", "talk", "alice", "I like tea."),
    ("w", "talk", "carol", "I like milk."),
    ("w", "diary", "alice", "I like saffron."),
    ("w", "aside", "carol", "I like cobalt."),
    ("w", "else", "bob", "I like magnolia."),
    ("v", "talk", "alice", "I like obsidian."),
]
UNHEARD = {"peer": ("cobalt", "magnolia", "obsidian"), "session": ("saffron", "cobalt", "magnolia", "obsidian")}
BODIES: dict[str, Any] = {
    "POST /v3/workspaces": {"id": "{workspace_id}"},
    f"POST {W}/peers": {"id": "{peer_id}"},
    **{f"POST {W}/{path}": {"query": "I like"} for path in ("search", "chat", "peers/{peer_id}/search")},
    **{f"POST {W}/{path}": {"query": "I like"} for path in ("peers/{peer_id}/chat", "sessions/{session_id}/search")},
    **{operation: {} for operation in ROUTES if operation.endswith(("/list", "/representation", "}/sessions"))},
    f"POST {W}/sessions": {"id": "{session_id}"},
}
"""Bodies of requests. Other routes get an invalid body: a 422 shows that the key was accepted."""


@dataclass(frozen=True, slots=True)
class World:
    """A server with data, and the one client that sends requests with all keys."""

    url: str
    asked: httpx.Client


def make_key(claims: dict[str, object]) -> str:
    return jwt.encode({"t": "2026-01-01T00:00:00Z", **claims}, SECRET, algorithm="HS256")


@pytest.fixture(scope="module")
def world(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Create two workspaces in which everybody has sent messages that not everybody received."""
    folder = tmp_path_factory.mktemp("keys")
    with running(folder, AUTH_USE_AUTH="true", AUTH_JWT_SECRET=SECRET) as served:
        for workspace in ("w", "v"):
            with _inside(served, workspace) as admin:
                admin.post("/scopes", json={"id": "x"}).raise_for_status()
                watching = {"alice": {"observe_others": True}, "carol": {}}
                admin.post("/sessions", json={"id": "talk", "peers": watching, "scopes": ["x"]}).raise_for_status()
                for place, session, peer, text in SAID:
                    if place == workspace:
                        say(admin, session, text, peer=peer)
                        card = {"peer_card": [f"card: {text}"]} if session != "talk" or workspace == "v" else None
                        if card is not None:
                            admin.put(f"/peers/{peer}/card", json=card).raise_for_status()
                settle(admin)
        with served.client() as asked:
            yield World(served.url, asked)


@pytest.fixture(scope="module")
def merged(world: World) -> dict[str, str]:
    """Return where the name of a merged peer leads: another peer, and a session that both were in."""
    with _inside(world, "m") as admin:
        for peer, text in (("old", "I like tea."), ("new", "I like magnolia.")):
            say(admin, "talk", text, peer=peer)
        settle(admin)
        assert _asked_as_old(world, f"GET {W}/sessions/talk/context", {"workspace_id": "m"}, None).status_code == 200
        admin.post("/ext/peers/old/merge", json={"into": "new"}).raise_for_status()
        deadline = time.monotonic() + 100
        while admin.get("/ext/merges").json()["items"][0]["state"] != "done":
            assert time.monotonic() < deadline
            time.sleep(0.02)  # the server has no way to be waited for
    return {"workspace_id": "m", "peer_id": "old", "session_id": "talk", **REST}


def _asked_as_old(world: World, operation: str, place: dict[str, str], body: Any) -> httpx.Response:
    method, _, path = operation.partition(" ")
    headers = {"Authorization": f"Bearer {make_key({'w': 'm', 'p': 'old'})}"}
    return world.asked.request(method, _filled(path, place), json=_filled(body, place), headers=headers)


@pytest.mark.parametrize("operation", [*ROUTES])
def test_key_of_a_peer_that_was_merged_opens_nothing(world: World, merged: dict[str, str], operation: str) -> None:
    for peer in ("old", "new"):
        answer = _asked_as_old(world, operation, {**merged, "peer_id": peer}, BODIES.get(operation))
        assert answer.status_code == 401, answer.text
        assert "merged" in answer.json()["detail"]


def test_key_of_a_peer_opens_again_what_it_opened_when_a_merge_is_undone(world: World) -> None:
    with _inside(world, "u") as admin:
        for peer in ("old", "new"):
            admin.post("/peers", json={"id": peer}).raise_for_status()
        made = admin.post("/ext/peers/old/merge", json={"into": "new"}).json()["id"]
        headers = {"Authorization": f"Bearer {make_key({'w': 'u', 'p': 'old'})}"}
        statuses = []
        for _ in range(2):
            deadline = time.monotonic() + 100
            while admin.get("/ext/merges").json()["items"][0]["state"] not in ("done", "undone"):
                assert time.monotonic() < deadline
                time.sleep(0.02)  # the server has no way to be waited for
            statuses.append(world.asked.get("/v3/workspaces/u/peers/old/context", headers=headers).status_code)
            admin.delete(f"/ext/merges/{made}")
    assert statuses == [401, 200]


def _inside(served: Served | World, workspace: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {make_key({'ad': True})}"}
    return httpx.Client(base_url=f"{served.url}/v3/workspaces/{workspace}", headers=headers, timeout=60, verify=PLAIN)


def test_every_route_has_a_rule() -> None:
    assert {*described()} - OPEN | {f"POST {W}/sessions/{{session_id}}/messages/"} == {*ROUTES}


def test_every_field_that_names_an_object_has_a_rule_where_narrow_keys_pass() -> None:
    decided = {(_general(operation), field) for operation, field in FIELDS}
    for operation, told in described().items():
        if operation in OPEN or not ROUTES[operation].keys() & {"peer", "session"}:
            continue
        for field in (*told["query"], *told["body"]):
            if _names_something(field):
                assert (operation, field) in decided, f"{operation}: {field}"


def _general(operation: str) -> str:
    return operation.replace("/peers/alice", "/peers/{peer_id}").replace("/sessions/talk", "/sessions/{session_id}")


def _names_something(field: str) -> bool:
    last = field.rpartition(".")[2]
    words = (
        "target",
        "perspective",
        "scope",
        "scopes",
        "peers",
        "sessions",
        "filters",
        "session",
        "observer",
        "observed",
    )
    return last.endswith("_id") or last.rpartition("_")[2] in words


def _filled(value: Any, place: dict[str, str]) -> Any:
    if isinstance(value, str):
        return value.format(**place)
    if isinstance(value, dict):
        return {_filled(key, place): _filled(item, place) for key, item in value.items()}
    return [_filled(item, place) for item in value] if isinstance(value, list) else value


def ask(served: World, kind: str, operation: str, place: dict[str, str], body: Any, **named: str) -> httpx.Response:
    """Send one request with the key of a kind, optionally for another session."""
    claims = KEYS[kind]
    method, _, path = operation.partition(" ")
    headers = {} if claims is None else {"Authorization": f"Bearer {make_key({**claims, **named})}"}
    answer = served.asked.request(method, _filled(path, place), json=_filled(body, place), headers=headers)
    assert answer.status_code < 500, answer.text
    for word in UNHEARD.get(kind, ()):
        assert word not in answer.text, f"{operation} with the key of a {kind} tells {word}"
    return answer


def opened(served: World, operation: str, body: Any) -> Rule:
    """Return the objects that each kind of key opens."""
    found: Rule = {}
    for kind in KEYS:
        for name in OBJECTS:
            answer = ask(served, kind, operation, PLACES[name], body)
            if answer.status_code != 401:
                found.setdefault(kind, set()).add(name)
    return found


DELETION = f"DELETE {W}/sessions/{{session_id}}"


PEER_DELETION = f"DELETE {W}/ext/peers/{{peer_id}}"


@pytest.mark.parametrize("operation", [name for name in ROUTES if name not in (DELETION, PEER_DELETION)])
def test_route_opens_for_the_keys_of_the_table(world: World, operation: str) -> None:
    nonsense = None if operation.startswith("GET") else [1]
    body = BODIES.get(operation, nonsense)
    if operation == f"DELETE {W}" or operation.endswith("/{conclusion_id}"):
        body = None  # a workspace with sessions in it stays
    assert opened(world, operation, body) == ROUTES[operation]


@pytest.mark.parametrize(("operation", "field"), [*FIELDS])
def test_field_names_what_the_table_says(world: World, operation: str, field: str) -> None:
    rule, query, body = FIELDS[operation, field]
    assert opened(world, operation + query, body) == rule


def test_session_is_deleted_with_its_own_key_or_a_wider_one(world: World) -> None:
    found: Rule = {}
    for kind in KEYS:
        for name in OBJECTS:
            place = PLACES[name]
            doomed = {**place, "session_id": f"{place['session_id']}-{kind}"}
            with _inside(world, place["workspace_id"]) as admin:
                made = {"id": doomed["session_id"], "peers": {place["peer_id"]: {}}}
                admin.post("/sessions", json=made).raise_for_status()
            named = {"s": f"talk-{kind}"} if kind == "session" else {}
            answer = ask(world, kind, DELETION, doomed, None, **named)
            assert answer.status_code in (202, 401)
            if answer.status_code == 202:
                found.setdefault(kind, set()).add(name)
    assert found == ROUTES[DELETION]


def test_peer_is_deleted_with_the_key_of_its_workspace(world: World) -> None:
    found: Rule = {}
    for kind in KEYS:
        for name in OBJECTS:
            place = {**PLACES[name], "peer_id": f"{PLACES[name]['peer_id']}-{kind}"}
            with _inside(world, place["workspace_id"]) as admin:
                admin.post("/peers", json={"id": place["peer_id"]}).raise_for_status()
            named = {"p": f"alice-{kind}"} if kind == "peer" else {}
            if ask(world, kind, PEER_DELETION, place, None, **named).status_code == 202:
                found.setdefault(kind, set()).add(name)
    assert found == ROUTES[PEER_DELETION]


def test_config_of_a_co_member_is_read_and_set_with_the_sessions_key_alone(world: World) -> None:
    place = {**PLACES["own"], "peer_id": "carol"}
    path = f"{W}/sessions/{{session_id}}/peers/{{peer_id}}/config"
    statuses = {
        kind: [
            ask(world, kind, f"{method} {path}", place, body).status_code
            for method, body in (("GET", None), ("PUT", {}))
        ]
        for kind in KEYS
    }
    scoped = f"GET {W}/sessions/{{session_id}}/peers/scope.x/config"
    assert [ask(world, kind, scoped, place, None).status_code for kind in KEYS] == [401, 200, 200, 401, 401]
    wide = [200, 204]
    assert statuses == {"none": [401, 401], "admin": wide, "workspace": wide, "peer": [401, 401], "session": wide}


def test_a_peers_key_creates_its_own_session_and_opens_no_stranger_s(world: World) -> None:
    new = {"id": "hers", "metadata": {"a": 1}}
    made = ask(world, "peer", f"POST {W}/sessions", PLACES["own"], new)
    assert (made.status_code, made.json()["metadata"]) == (201, {"a": 1})
    inside = ask(world, "peer", f"GET {W}/sessions/hers/peers", PLACES["own"], None).json()["items"]
    assert [peer["id"] for peer in inside] == ["alice"]
    assert ask(world, "peer", f"POST {W}/sessions", PLACES["own"], {"id": "hers"}).status_code == 200
    refused: list[Any] = [
        {"id": "else"},
        {"id": "else", "peers": {"alice": {}}},
        {"id": "new", "peers": {"bob": {}}},
        {"id": "new", "scopes": []},
        {"id": "hers", "metadata": {"a": 2}},
    ]
    for body in refused:
        assert ask(world, "peer", f"POST {W}/sessions", PLACES["own"], body).status_code == 401
    with _inside(world, "w") as admin:
        assert admin.get("/sessions/new/peers").json()["total"] == 0
        assert [peer["id"] for peer in admin.get("/sessions/else/peers").json()["items"]] == ["bob"]
        admin.request("DELETE", "/sessions/hers/peers", json=["alice"]).raise_for_status()
    assert ask(world, "peer", f"POST {W}/sessions", PLACES["own"], {"id": "hers"}).status_code == 401


def test_key_of_a_peer_sees_no_other_peer_through_the_context_of_a_session(world: World) -> None:
    base = f"GET {W}/sessions/talk/context"
    own = ask(world, "peer", f"{base}?peer_target=alice", PLACES["own"], None).json()
    assert "saffron" in own["peer_representation"]
    assert own["peer_card"] == ["card: I like saffron."]
    for query in (
        "peer_target=carol",
        "peer_target=carol&peer_perspective=carol",
        "peer_target=bob&peer_perspective=carol",
        "peer_target=alice&peer_perspective=carol",
        "peer_target=carol&limit_to_session=true",
        "peer_target=alice&sessions=talk&sessions=aside",
        "peer_target=alice&sessions=talk&sessions=nowhere",
    ):
        assert ask(world, "peer", f"{base}?{query}", PLACES["own"], None).status_code == 401, query


def test_a_peers_key_sees_others_in_a_context_from_that_peers_perspective(world: World) -> None:
    query = "peer_target=carol&peer_perspective=alice"
    told = ask(world, "peer", f"GET {W}/sessions/talk/context?{query}", PLACES["own"], None).json()
    assert "milk" in told["peer_representation"], "alice heard it; what carol said elsewhere she did not"
    both = f"{query}&sessions=talk&sessions=aside"
    assert ask(world, "peer", f"GET {W}/sessions/talk/context?{both}", PLACES["own"], None).status_code == 401


def test_a_sessions_key_gets_members_and_creates_missing_peers_and_changes_nothing(world: World) -> None:
    route = f"POST {W}/peers"
    with _inside(world, "w") as admin:
        before = admin.post("/peers", json={"id": "carol", "metadata": {"a": 1}}).json()
        stranger = {"id": "bob", "metadata": {"secret": "magnolia"}}
        admin.post("/peers", json=stranger, headers={"Idempotency-Key": "b"}).raise_for_status()
        assert ask(world, "session", route, PLACES["own"], {"id": "carol"}).json() == before
        changes: list[dict[str, object]] = [{"metadata": {}}, {"configuration": {"observe_me": False}}]
        for more in changes:
            for name in ("carol", "newcomer"):
                assert ask(world, "session", route, PLACES["own"], {"id": name, **more}).status_code == 401
        assert admin.post("/peers", json={"id": "carol"}).json() == before
        assert ask(world, "session", route, PLACES["own"], {"id": "newcomer"}).status_code == 201
        key = {"Authorization": f"Bearer {make_key({'w': 'w', 's': 'talk'})}", "Idempotency-Key": "b"}
        assert world.asked.post("/v3/workspaces/w/peers", json={"id": "bob"}, headers=key).status_code in (401, 422)
        admin.post("/peers", json={"id": "bob"}, headers={"Idempotency-Key": "again"}).raise_for_status()
        key["Idempotency-Key"] = "again"
        refused = world.asked.post("/v3/workspaces/w/peers", json={"id": "bob"}, headers=key)
        assert refused.status_code in (401, 422), "the answer to another key is not told again"
        assert "magnolia" not in refused.text


def test_key_of_a_session_that_is_deleted_shows_no_member(world: World) -> None:
    with _inside(world, "w") as admin:
        admin.post("/sessions", json={"id": "ended", "peers": {"carol": {}}}).raise_for_status()
        key = {"Authorization": f"Bearer {make_key({'w': 'w', 's': 'ended'})}"}
        statuses = []
        for _ in range(2):
            answer = world.asked.post("/v3/workspaces/w/peers", json={"id": "carol"}, headers=key)
            statuses.append(answer.status_code)
            admin.delete("/sessions/ended")
    assert statuses == [200, 401]


def test_a_peers_key_lists_its_current_sessions_and_none_that_it_left(world: World) -> None:
    with _inside(world, "w") as admin:
        made = {"id": "left", "peers": {"alice": {}}, "metadata": {"plan": "cobalt"}}
        admin.post("/sessions", json=made).raise_for_status()
        admin.request("DELETE", "/sessions/left/peers", json=["alice"]).raise_for_status()
        listed = {item["id"] for item in admin.post("/peers/alice/sessions", json={}).json()["items"]}
    own = ask(world, "peer", f"POST {W}/peers/alice/sessions", PLACES["own"], {}).json()["items"]
    assert "left" in listed - {item["id"] for item in own}
    assert "talk" in {item["id"] for item in own}


def test_key_of_a_session_sees_of_a_peer_what_was_said_in_that_session(world: World) -> None:
    told = ask(world, "session", f"GET {W}/sessions/talk/context?peer_target=alice", PLACES["own"], None).json()
    assert "tea" in told["peer_representation"]
    assert told["peer_card"] is None
