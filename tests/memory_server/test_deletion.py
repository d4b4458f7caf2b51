"""Deleted data is hidden immediately, and later removed from the file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from hermes.memory_server.db.schema import FILE
from tests.memory_server.in_file import rows, wait_for_work
from tests.memory_server.serving import Served, inside, running
from tests.memory_server.talking import conclude, ids, itself, say, settle

pytestmark = pytest.mark.processes

WORD = "abracadabra"


def fill(http: httpx.Client) -> None:
    """Create two sessions, one of which contains the word in every place that can hold it."""
    http.post("/sessions", json={"id": "talk", "peers": {"ann": {}, "ben": {"observe_others": True}}, "scopes": ["x"]})
    say(http, "talk", f"I know the word {WORD}.", *(f"I say {WORD} {n} times." for n in range(25)))
    say(http, "other", "I know nothing.")
    conclude(http, f"ann says {WORD}", session="talk")
    conclude(http, "ann knows nothing")


def told(http: httpx.Client) -> list[httpx.Response]:
    """Return the responses of all routes that could reveal the word."""
    return [
        http.post("/search", json={"query": WORD}),
        http.post("/search", json={"query": WORD[:-1]}),
        http.post("/search", json={"query": WORD, "scope": "x"}),
        http.post("/search", json={"query": WORD, "filters": {"peer_perspective": "ben"}}),
        http.post("/peers/ann/search", json={"query": WORD}),
        http.post("/sessions/talk/search", json={"query": WORD}),
        http.post("/sessions/talk/messages/list"),
        http.get("/sessions/talk/context?peer_target=ann"),
        http.get("/peers/ann/context"),
        http.post("/peers/ann/representation", json={"search_query": WORD}),
        http.post("/peers/ben/representation", json={"target": "ann"}),
        http.post("/peers/ann/representation", json={"scope": "x"}),
        http.post("/peers/ann/chat", json={"query": WORD}),
        http.post("/chat", json={"query": WORD}),
        http.post("/conclusions/list?size=100"),
        http.post("/conclusions/query", json={"query": WORD, "filters": {"observer": "ann", "observed": "ann"}}),
        http.post("/sessions/list"),
        http.post("/scopes/x/sessions/list"),
    ]


def test_deleted_session_is_silent_at_once_although_nobody_removes_it(quiet: httpx.Client) -> None:
    fill(quiet)
    spoke = sum(WORD in answer.text for answer in told(quiet))
    assert spoke >= 10
    assert quiet.delete("/sessions/talk").json() == {"message": "Session deleted successfully"}
    for answer in told(quiet):
        assert answer.status_code == 200, answer.text
        assert WORD not in answer.text, answer.url
    assert [message["content"] for message in quiet.post("/search", json={"query": "know"}).json()] == [
        "I know nothing."
    ]
    assert quiet.get("/queue/status?session_id=talk").json()["total_work_units"] == 0
    assert quiet.delete("/sessions/talk").status_code == 404
    assert ids(quiet.post("/sessions/list")) == ["other"]
    assert ids(quiet.post("/scopes/x/sessions/list")) == []
    assert ids(quiet.post("/peers/ann/sessions")) == ["talk", "other"]
    assert [item["is_active"] for item in quiet.post("/peers/ann/sessions").json()["items"]] == [False, True]


def test_deleted_session_refuses_everything_until_it_is_gone(quiet: httpx.Client) -> None:
    fill(quiet)
    message = quiet.post("/sessions/talk/messages/list").json()["items"][0]
    quiet.delete("/sessions/talk")
    body: dict[str, Any] = {"messages": [{"content": "x", "peer_id": "ann"}]}
    new = {"content": "x", "observer_id": "ann", "observed_id": "ann", "session_id": "talk"}
    refused = [
        quiet.post("/sessions", json={"id": "talk"}),
        quiet.put("/sessions/talk", json={}),
        quiet.post("/sessions/talk/messages", json=body),
        quiet.post("/sessions/talk/peers", json={"ann": {}}),
        quiet.put("/sessions/talk/peers", json={"ann": {}}),
        quiet.request("DELETE", "/sessions/talk/peers", json=["ann"]),
        quiet.get("/sessions/talk/peers/ann/config"),
        quiet.get(f"/sessions/talk/messages/{message['id']}"),
        quiet.put(f"/sessions/talk/messages/{message['id']}", json={}),
        quiet.post("/sessions/talk/clone"),
        quiet.post("/conclusions", json={"conclusions": [new]}),
        quiet.post("/peers/ann/chat", json={"query": "x", "session_id": "talk"}),
        quiet.post("/scopes/x/sessions", json={"session_ids": ["talk"]}),
        quiet.post("/schedule_dream", json={"observer": "ann", "dream_type": "omni", "session_id": "talk"}),
    ]
    assert {answer.status_code for answer in refused} == {404}
    assert ids(quiet.get("/sessions/talk/peers")) == []
    assert quiet.get("/sessions/talk/summaries").json() == {"id": "talk", "short_summary": None, "long_summary": None}


@pytest.mark.contract("9.1")
def test_deleted_session_and_workspace_leave_nothing_in_the_file(tmp_path: Path) -> None:
    with running(tmp_path) as served:
        with inside(served, "kept") as kept:
            say(kept, "talk", "I stay here.")
            settle(kept)
            before = rows(tmp_path)
        with inside(served, "w") as http:
            fill(http)
            settle(http)
            http.put("/peers/ann/card", json={"peer_card": [WORD]})
            http.post("/schedule_dream", json={"observer": "ann", "dream_type": "omni"})
            assert http.delete(itself(http)).status_code == 409
            for session in ("talk", "other"):
                assert http.delete(f"/sessions/{session}").status_code == 202
            assert http.delete(itself(http)).status_code == 202
            assert http.delete(itself(http)).status_code == 404
            assert ids(http.post("/peers/list")) == []
            wait_for_removal(served, tmp_path)
    left = rows(tmp_path)
    assert {**left, "jobs": before["jobs"]} == before
    assert WORD.encode() not in (tmp_path / FILE).read_bytes()


def test_what_is_deleted_leaves_every_file_while_the_server_runs(tmp_path: Path) -> None:
    with running(tmp_path) as served, inside(served, "w") as http:
        said = say(http, "kept", f"I know the word {WORD}.", "I stay here.")
        fill(http)
        [held] = conclude(http, f"ben says {WORD}")
        settle(http)
        assert in_files(tmp_path)
        http.delete(f"/ext/sessions/kept/messages/{said[0]['id']}").raise_for_status()
        http.delete("/sessions/talk").raise_for_status()
        wait_for_work(tmp_path)
        http.delete(f"/conclusions/{held['id']}").raise_for_status()
        wait_for_work(tmp_path)
        assert in_files(tmp_path) == []
        left = http.post("/sessions/kept/messages/list").json()["items"]
        assert [message["content"] for message in left] == ["I stay here."]


def in_files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and WORD.encode() in path.read_bytes()]


def wait_for_removal(served: Served, folder: Path) -> None:
    with inside(served, "watch") as http:
        wait_for_work(folder)
        say(http, "s", "I watch.")
        settle(http)
        http.delete("/sessions/s")
        http.delete(itself(http))
        wait_for_work(folder)


def test_name_of_a_deleted_workspace_is_free_and_begins_empty(http: httpx.Client, workspace: str) -> None:
    fill(http)
    for session in ("talk", "other"):
        http.delete(f"/sessions/{session}")
    http.delete(itself(http)).raise_for_status()
    say(http, "talk", "I am new.")
    assert [message["content"] for message in http.post("/sessions/talk/messages/list").json()["items"]] == [
        "I am new."
    ]
    assert ids(http.post("/peers/list")) == ["ann"]
    assert all(WORD not in answer.text for answer in told(http) if answer.status_code == 200)


def test_clone_has_the_members_who_are_in_the_session_now(http: httpx.Client) -> None:
    http.post("/sessions", json={"id": "talk", "peers": {"ann": {"observe_others": True}, "ben": {}}})
    http.request("DELETE", "/sessions/talk/peers", json=["ben"]).raise_for_status()
    copy = http.post("/sessions/talk/clone").json()["id"]
    assert ids(http.get(f"/sessions/{copy}/peers")) == ["ann"]
    assert http.get(f"/sessions/{copy}/peers/ann/config").json() == {"observe_me": None, "observe_others": True}


def test_clone_with_a_cut_lets_later_members_hear_what_follows(http: httpx.Client) -> None:
    first = say(http, "talk", "one", "two", "three", "four")[0]
    http.post("/sessions/talk/peers", json={"ben": {}}).raise_for_status()
    copy = http.post(f"/sessions/talk/clone?message_id={first['id']}").json()["id"]
    say(http, copy, "something new")
    asked = {"query": "new", "filters": {"peer_perspective": "ben", "session_id": copy}}
    assert [message["content"] for message in http.post("/search", json=asked).json()] == ["something new"]


def test_deleted_workspace_is_in_no_list_while_its_removal_waits(
    quiet: httpx.Client, resting: Served, workspace: str
) -> None:
    with resting.client() as outside:
        assert outside.delete(f"/v3/workspaces/{workspace}").status_code == 202
        listed = outside.post("/v3/workspaces/list", params={"size": 100, "reverse": "true"}).json()
        assert [item["id"] for item in listed["items"] if workspace in item["id"]] == []


def test_deleted_workspace_answers_to_no_name_while_its_removal_waits(
    quiet: httpx.Client, resting: Served, workspace: str
) -> None:
    quiet.post("/peers", json={"id": "ann"}).raise_for_status()
    with resting.client() as outside:
        uid = outside.post("/v3/workspaces", json={"id": workspace}).json()["uid"]
        assert outside.delete(f"/v3/workspaces/{workspace}").status_code == 202
        with sqlite3.connect(resting.folder / FILE) as file:
            [(kept,)] = file.execute("SELECT name FROM workspaces WHERE uid = ?", (uid,)).fetchall()
        file.close()
        for name in (quote(kept, safe=""), quote(kept)):
            assert outside.post(f"/v3/workspaces/{name}/peers/list").status_code == 404
            assert outside.post(f"/v3/workspaces/{name}/sessions", json={"id": "s"}).status_code in (404, 405)


def dream(http: httpx.Client) -> None:
    settle(http)
    http.post("/schedule_dream", json={"observer": "ann", "dream_type": "omni"}).raise_for_status()
    settle(http)


def test_card_that_a_dream_made_loses_what_came_from_a_deleted_session(http: httpx.Client) -> None:
    say(http, "talk", "I live in Malta.", "I like tea.")
    say(http, "other", "I live in Malta.", "I work at night.")
    dream(http)
    http.delete("/sessions/talk")
    assert http.get("/peers/ann/card").json()["peer_card"] == ["ann: I live in Malta.", "ann: I work at night."]
    http.delete("/sessions/other")
    assert not http.get("/peers/ann/card").json()["peer_card"]


def test_conclusion_from_two_sessions_survives_the_deletion_of_one_after_a_dream(http: httpx.Client) -> None:
    for session in ("first", "second"):
        say(http, session, "I live in Malta.")
    dream(http)
    http.delete("/sessions/first")
    assert http.post("/peers/ann/representation", json={"session_id": "second"}).json()["representation"] != ""
