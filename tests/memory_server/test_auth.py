"""Validity of keys, and what is answered without one. `test_keys` tests what each kind of key permits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest

from tests.memory_server.serving import SECRET, Served
from tests.strangers import HOSTS, PAGES, get

MERGES = "/v3/workspaces/open/ext/merges"
BODIES: dict[str, object] = {
    "/v3/workspaces": {"id": "w"},
    "/v3/workspaces/w/peers": {"id": "alice"},
    "/v3/workspaces/w/sessions": {"id": "talk"},
}


def make_key(claims: dict[str, object]) -> str:
    return jwt.encode({"t": "2026-01-01T00:00:00Z", **claims}, SECRET, algorithm="HS256")


@pytest.fixture(scope="module")
def prepared(guarded: Served) -> Iterator[Served]:
    with guarded.client(make_key({"ad": True})) as admin:
        for path, body in BODIES.items():
            admin.post(path, json=body).raise_for_status()
        admin.post("/v3/workspaces/w/sessions/talk/peers", json={"alice": {}, "carol": {}}).raise_for_status()
        yield guarded


@pytest.mark.parametrize(
    "claims",
    [
        {"ad": True, "exp": "2020-01-01T00:00:00Z"},
        {"ad": True, "exp": "soon"},
        {"p": "alice"},
        {"s": "talk"},
        {"w": 7},
        {},
    ],
)
def test_key_that_expired_or_makes_no_sense_opens_nothing(guarded: Served, claims: dict[str, object]) -> None:
    with guarded.client(make_key(claims)) as client:
        answer = client.post("/v3/workspaces/list", json={})
    assert answer.status_code == 401
    assert isinstance(answer.json()["detail"], str)


def test_key_of_another_secret_or_algorithm_opens_nothing(guarded: Served) -> None:
    other = jwt.encode({"ad": True}, "another secret, just as long as the right one", algorithm="HS256")
    unsigned = jwt.encode({"ad": True}, None, algorithm="none")
    for key in (other, unsigned, "garbage", "a.b.c"):
        with guarded.client(key) as client:
            assert client.post("/v3/workspaces/list", json={}).status_code == 401


def test_made_key_works_until_it_expires(guarded: Served) -> None:
    with guarded.client(make_key({"ad": True})) as admin:
        made = admin.post("/v3/keys", params={"workspace_id": "w", "expires_at": "2999-01-01"}).json()["key"]
        stale = admin.post("/v3/keys", params={"workspace_id": "w", "expires_at": "2001-01-01"}).json()["key"]
        assert admin.post("/v3/keys").status_code == 422
        assert admin.post("/v3/keys", params={"peer_id": "alice"}).status_code == 422
    with guarded.client(made) as client:
        assert client.post("/v3/workspaces/w/peers/list", json={}).status_code in (200, 404)
    with guarded.client(stale) as client:
        assert client.post("/v3/workspaces/w/peers/list", json={}).status_code == 401


@pytest.mark.parametrize("name", ["", "../..", "a b", "x" * 513])
def test_key_for_a_name_that_nothing_can_have_is_refused_by_its_field(guarded: Served, name: str) -> None:
    with guarded.client(make_key({"ad": True})) as admin:
        for field in ("workspace_id", "peer_id", "session_id"):
            refused = admin.post("/v3/keys", params={"workspace_id": "w", field: name})
            assert (refused.status_code, refused.json()["detail"][0]["loc"]) == (422, ["query", field])


def test_without_authentication_there_are_no_keys(server: Served) -> None:
    with server.client() as client:
        assert client.post("/v3/keys", params={"workspace_id": "w"}).status_code == 405


@pytest.fixture(scope="module")
def unguarded(server: Served) -> Served:
    with server.client() as client:
        client.post("/v3/workspaces", json={"id": "open"}).raise_for_status()
    return server


@pytest.mark.parametrize(("host", "status"), HOSTS)
def test_without_keys_only_a_host_that_names_this_machine_is_answered(
    unguarded: Served, host: bytes | None, status: int
) -> None:
    found, body = get(unguarded.url, MERGES, host)
    assert found == status
    if status == 403:
        assert "`Host`" in json.loads(body)["detail"]


@pytest.mark.parametrize(("header", "status"), PAGES)
def test_without_keys_no_web_page_is_answered(unguarded: Served, header: bytes, status: int) -> None:
    assert get(unguarded.url, MERGES, b"localhost", header)[0] == status


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://localhost:3000"}])
def test_who_has_a_key_may_be_anyone(guarded: Served, headers: dict[str, str]) -> None:
    with guarded.client(make_key({"ad": True})) as client:
        assert client.post("/v3/workspaces/list", json={}, headers=headers).status_code == 200


@pytest.mark.processes
def test_server_that_others_can_reach_does_not_start_without_keys(tmp_path: Path) -> None:
    everywhere = ["--host", "0.0.0.0", "--port", "0"]  # noqa: S104 - it must not
    ended = subprocess.run(
        [sys.executable, "-m", "hermes", "memory", "serve", *everywhere, "--data", str(tmp_path)],
        env={name: value for name, value in os.environ.items() if not name.startswith("AUTH_")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2
    assert "AUTH_JWT_SECRET" in ended.stderr


def test_key_of_a_peer_asks_about_sessions_that_it_is_in_and_no_others(prepared: Served) -> None:
    with prepared.client(make_key({"ad": True})) as admin:
        for name, member in (("hers", "alice"), ("theirs", "carol"), ("left", "alice")):
            body = {"id": name, "peers": {member: {}}}
            admin.post("/v3/workspaces/w/sessions", json=body).raise_for_status()
        admin.request("DELETE", "/v3/workspaces/w/sessions/left/peers", json=["alice"]).raise_for_status()

    def ask(claims: dict[str, object], **asked: object) -> int:
        with prepared.client(make_key(claims)) as client:
            return client.post("/v3/workspaces/w/peers/alice/chat", json={"query": "hm?", **asked}).status_code

    alice: dict[str, object] = {"w": "w", "p": "alice"}
    everyone: dict[str, object] = {"w": "w"}
    assert ask(alice) == ask(alice, session_id="hers") == ask(alice, filters={"session_id": ["hers"]}) == 200
    for session in ("theirs", "left"):
        for asked in ({"session_id": session}, {"filters": {"session_id": ["hers", session]}}):
            assert ask(alice, **asked) == 401
            assert ask(everyone, **asked) == 200


def test_scope_is_for_the_whole_workspace_and_not_for_one_peer(prepared: Served) -> None:
    asked: list[tuple[str, str, object]] = [
        ("POST", "peers/alice/representation", {"scope": "nowhere"}),
        ("POST", "peers/alice/chat", {"query": "hm?", "scope": "nowhere"}),
        ("GET", "sessions/talk/context?peer_target=alice&scope=nowhere", None),
    ]
    for method, path, body in asked:
        statuses = []
        for claims in ({"w": "w", "p": "alice"}, {"w": "w", "s": "talk"}, {"w": "w"}):
            with prepared.client(make_key({**claims})) as client:
                statuses.append(client.request(method, f"/v3/workspaces/w/{path}", json=body).status_code)
        assert statuses == [401, 401, 404]


def test_member_of_a_session_of_that_name_elsewhere_is_no_member(prepared: Served) -> None:
    with prepared.client(make_key({"ad": True})) as admin:
        body = {"id": "talk", "peers": {"bob": {}}}
        admin.post("/v3/workspaces/elsewhere/sessions", json=body).raise_for_status()
    with prepared.client(make_key({"w": "w", "p": "bob"})) as client:
        assert client.get("/v3/workspaces/w/sessions/talk/peers").status_code == 401
    with prepared.client(make_key({"w": "elsewhere", "p": "bob"})) as client:
        assert client.get("/v3/workspaces/elsewhere/sessions/talk/peers").status_code == 200


def test_key_of_a_session_puts_it_into_no_scope(prepared: Served) -> None:
    with prepared.client(make_key({"w": "w", "s": "talk"})) as client:
        assert client.post("/v3/workspaces/w/sessions", json={"id": "talk"}).status_code == 200
        assert client.post("/v3/workspaces/w/sessions", json={"id": "talk", "scopes": ["x"]}).status_code == 401
        assert client.post("/v3/workspaces/w/sessions", json={"id": "else"}).status_code == 401


def test_key_of_one_workspace_makes_no_other(prepared: Served) -> None:
    for claims in ({"w": "w"}, {"w": "w", "p": "alice"}, {"w": "w", "s": "talk"}):
        with prepared.client(make_key({**claims})) as client:
            assert client.post("/v3/workspaces", json={"id": "w"}).status_code == 200
            assert client.post("/v3/workspaces", json={"id": "mine"}).status_code == 401
            allowed = client.post("/v3/workspaces/w/peers", json={"id": "bob"}).status_code in (200, 201)
            assert allowed == (len(claims) == 1)
