"""Responses of each route for existing and missing objects."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from tests.memory_server.serving import Served, inside
from tests.memory_server.talking import conclude, ids, itself, say
from tests.plain_http import PLAIN

NANOID = re.compile(r"[A-Za-z0-9_-]{21}")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.mark.parametrize("path", ["/peers", "/sessions", "/scopes"])
def test_first_creation_answers_201_and_the_second_200(http: httpx.Client, path: str) -> None:
    first, second = (http.post(path, json={"id": "one", "metadata": {"n": n}, "unknown": 1}) for n in (1, 2))
    assert (first.status_code, second.status_code) == (201, 200)
    assert (first.json()["metadata"], second.json()["metadata"]) == ({"n": 1}, {"n": 2})
    assert http.post(path, json={"id": "one"}).json()["metadata"] == {"n": 2}
    assert first.json()["created_at"] == second.json()["created_at"]


def test_server_makes_ids_of_21_letters_and_times_with_microseconds(quiet: httpx.Client) -> None:
    message = say(quiet, "talk", "hello")[0]
    conclusion = conclude(quiet, "a fact")[0]
    hook = quiet.post("/webhooks", json={"url": "https://example.org"}).json()
    copy = quiet.post("/sessions/talk/clone").json()
    for made in (message, conclusion, hook, copy):
        assert NANOID.fullmatch(made["id"])
        assert MOMENT.fullmatch(made["created_at"])


def test_put_makes_what_is_missing(server: Served, workspace: str, http: httpx.Client) -> None:
    with server.client() as outside:
        made = outside.put(f"/v3/workspaces/{workspace}-new", json={"metadata": {"a": 1}})
        assert (made.status_code, made.json()["metadata"]) == (200, {"a": 1})
    assert http.put("/peers/zoe", json={"metadata": {"a": 1}}).json()["metadata"] == {"a": 1}
    assert http.put("/sessions/new", json={"metadata": {"a": 1}}).json()["metadata"] == {"a": 1}
    assert http.put("/peers/yan/card", json={"peer_card": ["x"] * 1000}).status_code == 200
    assert ids(http.post("/peers/list")) == ["zoe", "yan"]
    assert ids(http.post("/sessions/list")) == ["new"]


def test_workspace_merges_its_configuration_by_top_level_keys(http: httpx.Client) -> None:
    http.put(itself(http), json={"metadata": {"a": 1}, "configuration": {"dream": {"enabled": False}, "x": {"y": 1}}})
    changed = http.put(itself(http), json={"configuration": {"x": {"z": 2}}}).json()
    assert changed["configuration"] == {"dream": {"enabled": False}, "x": {"z": 2}}
    assert changed["metadata"] == {"a": 1}
    assert http.put(itself(http), json={"metadata": {"b": 2}}).json()["metadata"] == {"b": 2}


def test_peer_update_replaces_given_fields_and_keeps_the_others(http: httpx.Client) -> None:
    http.post("/peers", json={"id": "ann", "metadata": {"a": 1}, "configuration": {"observe_me": False}})
    changed = http.put("/peers/ann", json={"metadata": {"b": 2}}).json()
    assert (changed["metadata"], changed["configuration"]) == ({"b": 2}, {"observe_me": False})
    changed = http.put("/peers/ann", json={"configuration": {}}).json()
    assert (changed["metadata"], changed["configuration"]) == ({"b": 2}, {})


def test_peers_are_listed_without_scopes_unless_they_are_wanted(http: httpx.Client) -> None:
    http.post("/scopes", json={"id": "work"})
    http.post("/peers", json={"id": "ann"})
    assert ids(http.post("/peers/list", json={})) == ["ann"]
    assert ids(http.post("/peers/list", json={"kind": "scope"})) == ["scope.work"]
    assert ids(http.post("/peers/list", json={"kind": "all"})) == ["scope.work", "ann"]
    assert http.post("/peers/list", json={"kind": "dog"}).status_code == 422
    assert http.put("/peers/scope.work", json={"metadata": {"a": 1}}).status_code == 422
    assert http.get("/scopes/work").json()["metadata"] == {}


def test_lists_have_fifty_on_a_page_and_the_oldest_first(http: httpx.Client) -> None:
    for number in range(51):
        http.put(f"/sessions/s{number}", json={})
    first = http.post("/sessions/list").json()
    assert [session["id"] for session in first["items"]] == [f"s{number}" for number in range(50)]
    assert (first["total"], first["page"], first["size"], first["pages"]) == (51, 1, 50, 2)
    assert ids(http.post("/sessions/list?page=2")) == ["s50"]
    assert len(ids(http.post("/sessions/list?size=100"))) == 51
    assert ids(http.post("/sessions/list?size=1&reverse=true")) == ["s50"]
    for wrong in ("size=0", "size=101", "page=0", "page=x", "reverse=maybe"):
        assert http.post(f"/sessions/list?{wrong}").status_code == 422


def test_members_keep_what_is_set_for_them_when_they_are_added_again(http: httpx.Client) -> None:
    http.post("/sessions", json={"id": "talk", "peers": {"ann": {"observe_me": False, "observe_others": True}}})
    http.post("/sessions/talk/peers", json={"ann": {"observe_me": True}, "ben": {}})
    path = "/sessions/talk/peers/ann/config"
    assert http.get(path).json() == {"observe_me": False, "observe_others": True}
    assert http.put(path, json={"observe_me": True}).status_code == 204
    assert http.get(path).json() == {"observe_me": True, "observe_others": True}
    assert http.put("/sessions/talk/peers", json={"ann": {}}).json()["id"] == "talk"
    assert http.get(path).json() == {"observe_me": None, "observe_others": None}
    assert ids(http.get("/sessions/talk/peers")) == ["ann"]


def test_peer_for_whom_something_is_set_becomes_a_member(http: httpx.Client) -> None:
    http.post("/sessions", json={"id": "talk", "peers": {"ann": {}, "ben": {}}}).raise_for_status()
    http.request("DELETE", "/sessions/talk/peers", json=["ben"]).raise_for_status()
    for name in ("ben", "new"):
        path = f"/sessions/talk/peers/{name}/config"
        assert http.get(path).status_code == 404
        assert http.put(path, json={"observe_others": True}).status_code == 204
        assert http.get(path).json() == {"observe_me": None, "observe_others": True}
    assert ids(http.get("/sessions/talk/peers")) == ["ann", "ben", "new"]
    assert http.put("/sessions/talk/peers/a b/config", json={}).status_code == 422
    assert http.put("/sessions/gone/peers/ann/config", json={}).status_code == 404


def test_session_keeps_its_scopes_when_its_peers_are_replaced(http: httpx.Client) -> None:
    http.post("/sessions", json={"id": "talk", "peers": {"ann": {}}, "scopes": ["work"]}).raise_for_status()
    http.put("/sessions/talk/peers", json={"ben": {}}).raise_for_status()
    assert ids(http.get("/sessions/talk/peers")) == ["ben"]
    assert ids(http.post("/scopes/work/sessions/list")) == ["talk"]


def watchers(number: int) -> dict[str, dict[str, bool]]:
    return {f"w{n}": {"observe_others": True} for n in range(number)}


def test_ten_observers_are_allowed_and_an_eleventh_changes_nothing(http: httpx.Client) -> None:
    full = {"id": "talk", "peers": {**watchers(10), "ann": {}}, "scopes": ["work", "home"]}
    assert http.post("/sessions", json=full).status_code == 201
    one_more = {"eve": {"observe_others": True}}
    assert http.post("/sessions/talk/peers", json=one_more).status_code == 400
    assert http.put("/sessions/talk/peers/ann/config", json={"observe_others": True}).status_code == 400
    assert http.put("/sessions/talk/peers", json=watchers(11)).status_code == 400
    assert http.post("/sessions", json={"id": "new", "peers": watchers(11)}).status_code == 400
    assert len(ids(http.get("/sessions/talk/peers"))) == 11
    assert http.get("/sessions/talk/peers/ann/config").json()["observe_others"] is None
    assert ids(http.post("/sessions/list")) == ["talk"], "a refused session must not be left behind"
    assert "eve" not in ids(http.post("/peers/list"))


def test_message_is_read_and_changed_in_its_own_session_alone(http: httpx.Client) -> None:
    message = say(http, "talk", "hello")[0]
    say(http, "other", "hi")
    assert http.get(f"/sessions/talk/messages/{message['id']}").json() == message
    assert http.get(f"/sessions/other/messages/{message['id']}").status_code == 404
    assert http.put(f"/sessions/other/messages/{message['id']}", json={"metadata": {"a": 1}}).status_code == 404
    assert http.post(f"/sessions/other/clone?message_id={message['id']}").status_code == 404
    assert http.put(f"/sessions/talk/messages/{message['id']}", json={}).json() == message
    changed = http.put(f"/sessions/talk/messages/{message['id']}", json={"metadata": {"a": 1}}).json()
    assert changed == {**message, "metadata": {"a": 1}}


def test_batch_is_taken_whole_or_not_at_all(http: httpx.Client) -> None:
    says = [{"content": "good", "peer_id": "ann"}, {"content": "bad", "peer_id": "a b"}]
    assert http.post("/sessions/talk/messages", json={"messages": says}).status_code == 422
    both = [{"content": "a", "observer_id": "ann", "observed_id": name} for name in ("ann", "nobody")]
    http.post("/peers", json={"id": "ann"})
    assert http.post("/conclusions", json={"conclusions": both}).status_code == 404
    assert http.post("/sessions/list").json()["total"] == http.post("/conclusions/list").json()["total"] == 0


def test_conclusions_are_explicit_counted_twice_and_the_newest_comes_first(http: httpx.Client) -> None:
    say(http, "talk", "?")
    made = conclude(http, "same", "same", "other", session="talk")
    assert [found["level"] for found in made] == ["explicit"] * 3
    assert ids(http.post("/conclusions/list")) == [made[2]["id"], made[1]["id"]]
    assert ids(http.post("/conclusions/list?reverse=true")) == [made[1]["id"], made[2]["id"]]
    assert [http.get(f"/conclusions/{one['id']}").json()["times_derived"] for one in made] == [2, 2, 1]
    wrong = {"content": "x", "observer_id": "ann", "observed_id": "ann", "session_id": "nowhere"}
    assert http.post("/conclusions", json={"conclusions": [wrong]}).status_code == 404
    given = {"content": "a\0b", "observer_id": "ann", "observed_id": "ann", "level": "deductive"}
    assert http.post("/conclusions", json={"conclusions": [given]}).json()[0]["content"] == "ab"


def test_query_for_conclusions_ranks_by_meaning_within_a_distance_and_a_filter(http: httpx.Client) -> None:
    say(http, "talk", "?")
    made = conclude(http, "She loves sailing boats on the sea", "The stove needs a new pipe")
    made += conclude(http, "She owns a small sailing yacht", session="talk")
    pair = {"observer_id": "ann", "observed_id": "ann"}

    def ask(**more: Any) -> list[str]:
        answer = http.post("/conclusions/query", json={"query": "sailing boat", "filters": pair, **more})
        assert answer.status_code == 200, answer.text
        return [found["id"] for found in answer.json()]

    assert ask()[-1] == made[1]["id"]
    assert len(ask()) == 3
    assert made[1]["id"] not in ask(distance=0.6)
    assert ask(distance=0.0) == []
    assert ask(top_k=1) == [made[0]["id"]]
    assert ask(filters={**pair, "session_id": "talk"}) == [made[2]["id"]]
    assert ask(filters={**pair, "content": {"contains": "STOVE"}}, top_k=1) == [made[1]["id"]]
    assert ask(filters={"observer": "nobody", "observed": "ann"}) == []
    assert http.post("/conclusions/query", json={"query": "x", "filters": {**pair, "a": 1}}).status_code == 422


def test_query_with_a_filter_looks_beyond_the_nearest_thousand(http: httpx.Client) -> None:
    wanted = conclude(http, "entirely unrelated: the moon is made of cheese")[0]
    for start in range(0, 1100, 100):
        conclude(http, *(f"tea is good, number {n}" for n in range(start, start + 100)))
    asked = {"observer": "ann", "observed": "ann", "content": {"contains": "moon"}}
    found = http.post("/conclusions/query", json={"query": "tea is good", "filters": asked}).json()
    assert [conclusion["id"] for conclusion in found] == [wanted["id"]]


def test_search_tells_as_many_as_are_wanted(http: httpx.Client) -> None:
    say(http, "talk", *(f"tea number {n}" for n in range(30)))
    for limit in (1, 3, 30):
        found = http.post("/search", json={"query": "tea", "limit": limit}).json()
        assert len({message["id"] for message in found}) == len(found) == limit
    assert len(http.post("/search", json={"query": "tea"}).json()) == 10


def test_unknown_session_has_an_empty_context(http: httpx.Client) -> None:
    http.post("/peers", json={"id": "ann"})
    told = http.get("/sessions/nowhere/context").json()
    empty: dict[str, Any] = {
        "id": "nowhere",
        "messages": [],
        "summary": None,
        "peer_representation": None,
        "peer_card": None,
    }
    assert told == empty
    assert http.get("/sessions/nowhere/context?peer_target=ann").json() == {**empty, "peer_representation": ""}
    assert http.post("/sessions/nowhere/messages/list").json()["items"] == []
    assert http.post("/sessions/nowhere/search", json={"query": "x"}).json() == []


def test_answer_is_streamed_as_events(http: httpx.Client) -> None:
    say(http, "talk", "I live in Malta, on the island of Gozo, near the citadel.")
    asked = {"query": "Where does she live?", "stream": True, "include_evidence": True}
    with http.stream("POST", "/peers/ann/chat", json=asked) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    *pieces, last = [json.loads(event) for event in events]
    assert "Malta" in "".join(piece["delta"]["content"] for piece in pieces)
    assert all(piece["done"] is False for piece in pieces)
    assert last["done"] is True
    assert [message["peer_id"] for message in last["evidence"]["messages"]] == ["ann"]
    silent = http.post("/peers/ben/chat", json={"query": "Who?", "stream": True})
    assert silent.text == 'data: {"done":true}\n\n'
    assert http.post("/peers/ben/chat", json={"query": "Who?"}).json() == {"content": None}
    assert "ben" in ids(http.post("/peers/list")), "whoever is asked is there"


def test_queue_status_names_sessions_by_their_internal_id(quiet: httpx.Client, resting: Served, workspace: str) -> None:
    say(quiet, "talk", "I am here.")
    with inside(resting, workspace + "-other") as other:
        say(other, "talk", "I am elsewhere.")
    uid = quiet.post("/sessions", json={"id": "talk"}).json()["uid"]
    told = quiet.get("/queue/status").json()
    nothing: dict[str, object] = {"promised": {}, "failing": {}, "waiting": {}}
    counts = {"completed_work_units": 0, "in_progress_work_units": 0, "pending_work_units": 1, "total_work_units": 1}
    assert told == {**counts, "sessions": {uid: {**counts, "session_id": uid}}, **nothing}
    assert quiet.get("/queue/status?session_id=talk").json() == {
        **counts,
        "sessions": None,
        "promised": {},
        "failing": {},
        "waiting": {},
    }
    assert quiet.get("/queue/status?session_id=other").json()["total_work_units"] == 0
    assert quiet.get("/queue/status?sender_id=ann&observer_id=ann").json()["total_work_units"] == 1


def test_webhook_of_another_workspace_is_not_seen_or_deleted(http: httpx.Client, server: Served) -> None:
    made = http.post("/webhooks", json={"url": "https://example.org/" + "x" * 2028})
    assert (made.status_code, len(made.json()["url"])) == (201, 2048)
    with server.client() as outside:
        outside.put("/v3/workspaces/elsewhere", json={})
        assert outside.delete(f"/v3/workspaces/elsewhere/webhooks/{made.json()['id']}").status_code == 404
        assert outside.get("/v3/workspaces/elsewhere/webhooks").json()["total"] == 0
    assert http.get("/webhooks").json()["total"] == 1


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "2130706433",
        "0x7f.1",
        "127.0.0.1.",
        "10.0.0.1",
        "[::ffff:127.0.0.1]",
        "[fe80::1]",
        "0",
        "224.0.0.1",
        "localhost",
        "LOCALHOST.",
        "me.localhost",
        "127\u30020\u30020\u30021",
        "１２７.0.0.1",
        "[2002:7f00:1::]",
        "[fe80::1%25eth0]",
    ],
)
def test_webhook_to_an_inner_address_is_refused_however_it_is_spelt(http: httpx.Client, host: str) -> None:
    assert http.post("/webhooks", json={"url": f"http://{host}/x"}).status_code == 422


def test_nothing_of_one_workspace_is_seen_from_another(http: httpx.Client, server: Served, workspace: str) -> None:
    message = say(http, "talk", "The secret word is abracadabra.")[0]
    conclusion = conclude(http, "ann knows abracadabra")[0]
    http.put("/peers/ann/card", json={"peer_card": ["abracadabra"]})
    other = httpx.Client(base_url=f"{server.url}/v3/workspaces/{workspace}-other", verify=PLAIN)
    with other:
        say(other, "talk", "nothing")
        assert other.get(f"/sessions/talk/messages/{message['id']}").status_code == 404
        assert other.get(f"/conclusions/{conclusion['id']}").status_code == 404
        assert other.delete(f"/conclusions/{conclusion['id']}").status_code == 404
        told = [
            other.post("/search", json={"query": "abracadabra"}),
            other.post("/peers/ann/search", json={"query": "abracadabra"}),
            other.post("/sessions/talk/search", json={"query": "abracadabra"}),
            other.post("/conclusions/list"),
            other.post("/peers/ann/representation", json={}),
            other.post("/peers/ann/chat", json={"query": "abracadabra"}),
            other.post("/chat", json={"query": "abracadabra"}),
            other.post("/chat", json={"query": "abracadabra", "filters": {"session_id": "talk"}}),
            other.get("/peers/ann/context"),
            other.get("/sessions/talk/context?peer_target=ann"),
        ]
    assert all("abracadabra" not in answer.text and answer.status_code == 200 for answer in told)
