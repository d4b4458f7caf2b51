"""Requests and items with idempotency keys: repetitions change nothing and get the first response."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes.memory_server import limits
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.tables import answers
from hermes.memory_server.engine.answers import (
    ANSWER_LIFETIME_MICROSECONDS,
    ANSWERS_PER_TRANSACTION,
    KeyedRequest,
    KeySpace,
    forget_answers,
    keep_answer,
)
from tests.memory_server.in_file import wait_for_work
from tests.memory_server.inside import serving
from tests.memory_server.keys_table import ROUTES, W
from tests.memory_server.losing import LosingTransport, post_until_heard
from tests.memory_server.serving import Served, inside, running
from tests.memory_server.shapes import described
from tests.memory_server.talking import say
from tests.scale import scale
from tests.store.still_clock import StillClock

pytestmark = [pytest.mark.contract("9.6", "P2"), pytest.mark.processes]
HEADER = "Idempotency-Key"
READING = ("/list", "/search", "/chat", "/representation", "/query", "peers/{peer_id}/sessions", "/v3/keys")
"""Suffixes of POST routes that store nothing."""
CREATING: dict[str, Any] = {
    "/peers": {"id": "new", "metadata": {"a": [1, 2]}},
    "/sessions": {"id": "new", "metadata": {"a": 1}, "peers": {f"p{n}": {} for n in range(120)}},
    "/sessions/talk/peers": {f"p{n}": {"observe_me": False} for n in range(120)},
    "/sessions/talk/messages": {"messages": [{"content": "one", "peer_id": "ann"}, {"content": "", "peer_id": "bo"}]},
    "/sessions/talk/clone": None,
    "/conclusions": {"conclusions": [{"content": "ann sings", "observer_id": "ann", "observed_id": "ann"}]},
    "/scopes": {"id": "x", "metadata": {"b": 2}},
    "/scopes/x/sessions": {"session_ids": ["talk"]},
    "/webhooks": {"url": "https://example.org/hook"},
    "/schedule_dream": {"observer": "ann", "dream_type": "omni"},
}


def counted(http: httpx.Client) -> list[int]:
    """Return the number of objects of each kind."""
    sessions = http.post("/sessions/list", json={}).json()
    lists = [http.post(f"/{name}/list", json={}).json()["total"] for name in ("peers", "conclusions", "scopes")]
    told = [http.post(f"/sessions/{s['id']}/messages/list", json={}).json()["total"] for s in sessions["items"]]
    members = [http.get(f"/sessions/{s['id']}/peers").json()["total"] for s in sessions["items"]]
    waiting = http.get("/queue/status").json()["pending_work_units"]
    return [*lists, sessions["total"], *sorted(told), *sorted(members), http.get("/webhooks").json()["total"], waiting]


def test_every_route_that_creates_takes_a_key_and_is_tried_here() -> None:
    taking = {operation for operation, told in described().items() if HEADER in told["headers"]}
    creating = {name for name in ROUTES if name.startswith("POST") and not name.endswith(READING)}
    taking -= {name for name in taking if "/ext/" in name}
    creating -= {name for name in creating if "/ext/" in name} | {f"POST {W}/sessions/{{session_id}}/messages/"}
    assert taking == creating
    tried = {path.replace("talk", "{session_id}").replace("/scopes/x", "/scopes/{scope_id}") for path in CREATING}
    apart = {"POST /v3/workspaces", f"POST {W}/sessions/{{session_id}}/messages/upload"}
    assert {f"POST {W}{path}" for path in tried} | apart == creating


@pytest.mark.parametrize("path", [*CREATING])
def test_request_repeated_with_its_key_changes_nothing_and_gets_the_first_response(
    quiet: httpx.Client, path: str
) -> None:
    say(quiet, "talk", "I am here.")
    quiet.post("/scopes", json={"id": "x"} if path != "/scopes" else {"id": "other"}).raise_for_status()
    first = quiet.post(path, json=CREATING[path], headers={HEADER: "k1"})
    assert first.is_success, first.text
    quiet.put("/peers/new", json={"metadata": {"changed": True}}).raise_for_status()
    before = counted(quiet)
    again = quiet.post(path, json=CREATING[path], headers={HEADER: "k1"})
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert counted(quiet) == before
    if path != "/sessions/talk/clone":
        other = {"id": "another"} if path in ("/peers", "/sessions", "/scopes") else _another(path)
        refused = quiet.post(path, json=other, headers={HEADER: "k1"})
        assert refused.status_code == 422, refused.text
        assert "'k1' was used with another body" in refused.text
        assert counted(quiet) == before


def _another(path: str) -> Any:
    return {
        "/sessions/talk/peers": {"p1": {}},
        "/sessions/talk/messages": {"messages": [{"content": "two", "peer_id": "ann"}]},
        "/conclusions": {"conclusions": [{"content": "ann runs", "observer_id": "ann", "observed_id": "ann"}]},
        "/scopes/x/sessions": {"session_ids": ["talk", "elsewhere"]},
        "/webhooks": {"url": "https://example.org/other"},
        "/schedule_dream": {"observer": "ann", "dream_type": "card_refresh"},
    }[path]


def test_workspace_is_made_once_under_a_key(resting: Served, workspace: str) -> None:
    with resting.client() as http:
        answers = [
            http.post("/v3/workspaces", json={"id": workspace, "metadata": {"a": 1}}, headers={HEADER: "k"})
            for _ in range(2)
        ]
        assert [answer.status_code for answer in answers] == [201, 201]
        assert answers[0].content == answers[1].content
        refused = http.post("/v3/workspaces", json={"id": workspace, "metadata": {"a": 2}}, headers={HEADER: "k"})
        assert refused.status_code == 422


@pytest.mark.parametrize("named", ["header", "metadata"])
def test_file_is_uploaded_once_under_a_key(quiet: httpx.Client, named: str) -> None:
    text = ("A line of it.\n" * 4000).encode()
    headers = {HEADER: "file-1"} if named == "header" else {}
    form = {"peer_id": "ann"} | ({"metadata": '{"hermes_key": "file-1"}'} if named == "metadata" else {})

    def upload(content: bytes) -> httpx.Response:
        file = {"file": ("notes.txt", content, "text/plain")}
        return quiet.post("/sessions/talk/messages/upload", files=file, data=form, headers=headers)

    first, again = upload(text), upload(text)
    assert first.status_code == 201
    assert len(first.json()) > 1
    assert again.content == first.content
    assert quiet.post("/sessions/talk/messages/list", json={}).json()["total"] == len(first.json())
    assert upload(text + b"!").status_code == 422


def test_key_is_told_apart_by_workspace_route_and_session(quiet: httpx.Client, resting: Served) -> None:
    body = {"messages": [{"content": "hello", "peer_id": "ann", "metadata": {"hermes_key": "m1"}}]}
    ids = [quiet.post(f"/sessions/{s}/messages", json=body, headers={HEADER: "k"}).json()[0]["id"] for s in "ab"]
    quiet.post("/peers", json={"id": "ann"}, headers={HEADER: "k"}).raise_for_status()
    with inside(resting, "another-workspace") as other:
        ids.append(other.post("/sessions/a/messages", json=body, headers={HEADER: "k"}).json()[0]["id"])
    assert len(set(ids)) == 3


def keyed(*numbers: int) -> dict[str, Any]:
    return {
        "messages": [{"content": f"m{n}", "peer_id": "ann", "metadata": {"hermes_key": f"key-{n}"}} for n in numbers]
    }


def test_partly_known_batch_adds_the_rest_and_answers_all_in_order(quiet: httpx.Client) -> None:
    first = quiet.post("/sessions/s/messages", json=keyed(1, 2)).json()
    mixed = quiet.post("/sessions/s/messages", json=keyed(3, 2, 4, 1, 3)).json()
    assert [message["content"] for message in mixed] == ["m3", "m2", "m4", "m1", "m3"]
    assert [mixed[3], mixed[1]] == first
    assert mixed[0] == mixed[4]
    told = quiet.post("/sessions/s/messages/list", json={}).json()["items"]
    assert [message["content"] for message in told] == ["m1", "m2", "m3", "m4"]
    assert [message["id"] for message in told] == [first[0]["id"], first[1]["id"], mixed[0]["id"], mixed[2]["id"]]


def test_another_message_under_a_known_key_is_refused_with_its_whole_batch(quiet: httpx.Client) -> None:
    quiet.post("/sessions/s/messages", json=keyed(1)).raise_for_status()
    body = keyed(2, 1)
    body["messages"][1]["content"] = "something else"
    refused = quiet.post("/sessions/s/messages", json=body)
    assert refused.status_code == 422
    assert "'key-1' was used with another body" in refused.text
    twice = {"messages": [*keyed(5)["messages"], {**keyed(5)["messages"][0], "content": "not the same"}]}
    assert quiet.post("/sessions/s/messages", json=twice).status_code == 422
    assert quiet.post("/sessions/s/messages/list", json={}).json()["total"] == 1


def test_conclusion_with_a_key_is_stored_once(quiet: httpx.Client) -> None:
    quiet.post("/peers", json={"id": "ann"})

    def conclude(*contents: str) -> httpx.Response:
        pair = {"observer_id": "ann", "observed_id": "ann"}
        new = [{"content": text, "hermes_key": text, **pair} for text in contents]
        return quiet.post("/conclusions", json={"conclusions": new})

    first = conclude("ann sings").json()
    both = conclude("ann runs", "ann sings").json()
    assert both[1] == first[0]
    stored = quiet.post("/conclusions/list", json={}).json()
    assert {item["id"] for item in stored["items"]} == {both[0]["id"], both[1]["id"]}
    assert {item["content"]: item for item in stored["items"]}["ann sings"] == first[0]


def test_repeated_message_is_answered_as_first_written_although_changed_since(quiet: httpx.Client) -> None:
    first = quiet.post("/sessions/s/messages", json=keyed(1))
    quiet.put(f"/sessions/s/messages/{first.json()[0]['id']}", json={"metadata": {"b": 2}}).raise_for_status()
    assert quiet.post("/sessions/s/messages", json=keyed(1)).content == first.content


@pytest.mark.parametrize("path", ["/sessions/s/messages", "/sessions/talk/clone"])
def test_two_at_once_have_one_effect_and_one_answer(quiet: httpx.Client, path: str) -> None:
    say(quiet, "talk", *("word " * 50 for _ in range(60)))
    body = keyed(*range(50)) if path.endswith("messages") else None
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: quiet.post(path, json=body, headers={HEADER: "k"}), range(8)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert quiet.post("/sessions/list", json={}).json()["total"] == 2
    if body is not None:
        assert quiet.post("/sessions/s/messages/list", json={}).json()["total"] == 50


def test_key_is_known_after_a_restart(processes: None, tmp_path: Path) -> None:
    told: list[bytes] = []
    for _ in range(2):
        with running(tmp_path, "--no-worker") as served, inside(served, "w") as http:
            told.append(http.post("/sessions/s/messages", json=keyed(1, 2), headers={HEADER: "k"}).content)
            told.append(http.post("/sessions/s/messages", json=keyed(1, 2)).content)
            assert http.post("/sessions/s/messages/list", json={}).json()["total"] == 2
    assert len(set(told)) == 1


def post(http: httpx.Client, path: str, body: Any, key: str = "k") -> httpx.Response:
    return http.post(path, json=body, headers={HEADER: key})


def test_replay_of_a_deleted_clone_names_no_missing_session(quiet: httpx.Client) -> None:
    say(quiet, "talk", "one", "two")
    first = post(quiet, "/sessions/talk/clone", None).json()["id"]
    kept = post(quiet, "/sessions/talk/clone", None, "another").json()["id"]
    quiet.delete(f"/sessions/{first}").raise_for_status()
    again = post(quiet, "/sessions/talk/clone", None).json()["id"]
    assert again != first
    assert quiet.post(f"/sessions/{again}/messages/list").json()["total"] == 2
    assert post(quiet, "/sessions/talk/clone", None).json()["id"] == again
    assert post(quiet, "/sessions/talk/clone", None, "another").json()["id"] == kept


def test_replay_tells_of_no_session_or_peer_whose_deletion_waits(quiet: httpx.Client) -> None:
    assert post(quiet, "/sessions", {"id": "s", "metadata": {"secret": 1}}).status_code == 201
    quiet.delete("/sessions/s").raise_for_status()
    assert post(quiet, "/sessions", {"id": "s", "metadata": {"secret": 1}}).status_code == 404
    first = post(quiet, "/peers", {"id": "ann", "metadata": {"secret": 1}})
    quiet.delete("/ext/peers/ann").raise_for_status()
    again = post(quiet, "/peers", {"id": "ann", "metadata": {"secret": 1}})
    assert (again.status_code, again.json()["created_at"] > first.json()["created_at"]) == (201, True)


def test_replay_of_a_merge_whose_peer_was_deleted_is_no_merge(http: httpx.Client, server: Served) -> None:
    for name in ("ann", "phone"):
        http.post("/peers", json={"id": name}).raise_for_status()
    assert post(http, "/ext/peers/phone/merge", {"into": "ann"}).status_code == 202
    wait_for_work(server.folder)
    http.delete("/ext/peers/ann").raise_for_status()
    assert post(http, "/ext/peers/phone/merge", {"into": "ann"}).status_code == 404


def test_replay_of_a_webhook_that_was_deleted_makes_it_again(http: httpx.Client) -> None:
    url = {"url": "https://example.org/hook"}
    first = post(http, "/webhooks", url).json()["id"]
    http.delete(f"/webhooks/{first}").raise_for_status()
    again = post(http, "/webhooks", url).json()["id"]
    assert [one["id"] for one in http.get("/webhooks").json()["items"]] == [again]


def test_deleted_session_takes_its_keys_along(http: httpx.Client) -> None:
    first = http.post("/sessions/s/messages", json=keyed(1)).json()
    http.delete("/sessions/s").raise_for_status()
    while (answer := http.post("/sessions/s/messages", json=keyed(1))).status_code == 404:
        pass  # until it is removed, its name is taken
    assert answer.status_code == 201
    assert answer.json()[0]["id"] != first[0]["id"]


@pytest.mark.parametrize("key", ["", "x" * (limits.KEY_CHARS + 1)])
def test_key_that_is_empty_or_too_long_is_refused(quiet: httpx.Client, key: str) -> None:
    assert quiet.post("/peers", json={"id": "ann"}, headers={HEADER: key}).status_code == 422
    message = {"content": "hi", "peer_id": "ann", "metadata": {"hermes_key": key}}
    assert quiet.post("/sessions/s/messages", json={"messages": [message]}).status_code == 422
    new = {"content": "hi", "observer_id": "ann", "observed_id": "ann", "hermes_key": key}
    assert quiet.post("/conclusions", json={"conclusions": [new]}).status_code == 422


async def test_key_is_free_again_after_seven_days(database: Database) -> None:
    clock = StillClock(1_000_000.0)
    async with serving(database, clock) as http:
        path = "/v3/workspaces/w/sessions/s/messages"
        first = (await http.post(path, json=keyed(1))).json()
        await clock.sleep(ANSWER_LIFETIME_MICROSECONDS / 1_000_000)
        assert (await http.post(path, json=keyed(1))).json() == first
        await clock.sleep(1)
        assert (await http.post(path, json=keyed(1))).json() != first


def test_answers_that_were_kept_long_enough_are_dropped_part_by_part(tx: Tx) -> None:
    for number in range(ANSWERS_PER_TRANSACTION + 2):
        keep_answer(tx, KeySpace(1), KeyedRequest("r", f"k{number}", "d"), 201, "[]", at=number)
    assert forget_answers(tx, at=ANSWER_LIFETIME_MICROSECONDS + ANSWERS_PER_TRANSACTION + 1)
    assert not forget_answers(tx, at=ANSWER_LIFETIME_MICROSECONDS + ANSWERS_PER_TRANSACTION + 1)
    assert [row.key for row in tx.execute(answers.select())] == [f"k{ANSWERS_PER_TRANSACTION + 1}"]


@pytest.mark.stress
def test_retries_after_lost_replies_leave_exact_counts_in_exact_order(server: Served, workspace: str) -> None:
    writers, each = 16, scale(25, 1000)

    def write(writer: int) -> int:
        transport = LosingTransport(seed=writer)
        base = f"{server.url}/v3/workspaces/{workspace}"
        with httpx.Client(base_url=base, timeout=60, transport=transport) as client:
            post_until_heard(client, "/peers", {"id": f"peer{writer}"})
            for start in range(0, each, 5):
                numbers = range(max(start - 2, 0), min(start + 5, each))  # two that are known already come along
                for session in (f"own{writer}", "shared"):
                    told = post_until_heard(client, f"/sessions/{session}/messages", _numbered(writer, numbers))
                    assert [message["content"] for message in told] == [f"{writer}: {n}" for n in numbers]
                post_until_heard(client, "/conclusions", _concluded(writer, numbers))
        return transport.lost

    with inside(server, workspace) as http:
        with ThreadPoolExecutor(writers) as pool:
            lost = list(pool.map(write, range(writers)))
        assert all(lost)
        for writer in range(writers):
            assert _contents(http, f"/sessions/own{writer}/messages/list") == [f"{writer}: {n}" for n in range(each)]
        shared = _contents(http, "/sessions/shared/messages/list")
        assert len(shared) == writers * each
        stored = _contents(
            http, "/conclusions/list?reverse=true", {"filters": {"content": {"contains": "peer counts"}}}
        )
        assert len(stored) == writers * each
        for writer in range(writers):
            own = [text for text in shared if text.startswith(f"{writer}: ")]
            assert own == [f"{writer}: {n}" for n in range(each)]
            concluded = [text for text in stored if text.endswith(f"for {writer}")]
            assert concluded == [f"peer counts {n} for {writer}" for n in range(each)]


def _numbered(writer: int, numbers: range) -> Any:
    quiet = {"reasoning": {"enabled": False}}
    return {
        "messages": [
            {
                "content": f"{writer}: {n}",
                "peer_id": f"peer{writer}",
                "metadata": {"hermes_key": f"{writer}-{n}"},
                "configuration": quiet,
            }
            for n in numbers
        ]
    }


def _concluded(writer: int, numbers: range) -> Any:
    pair = {"observer_id": f"peer{writer}", "observed_id": f"peer{writer}"}
    return {
        "conclusions": [
            {"content": f"peer counts {n} for {writer}", "hermes_key": f"{writer}-{n}", **pair} for n in numbers
        ]
    }


def _contents(http: httpx.Client, path: str, body: Any = None) -> list[str]:
    found: list[str] = []
    page = 1
    while True:
        mark = "&" if "?" in path else "?"
        told = http.post(f"{path}{mark}page={page}&size=100", json=body or {}).json()
        found += [item["content"] for item in told["items"]]
        if page >= told["pages"]:
            return found
        page += 1
