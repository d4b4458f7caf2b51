"""Extensions of Honcho's API: deletion of messages and peers, provenance, corrections."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes.clock import SystemClock
from hermes.memory_server.api.app import EXTENSIONS
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.schema import FILE
from hermes.memory_server.engine import deletion
from hermes.memory_server.engine.conclusions import list_conclusions
from hermes.memory_server.engine.deletion import begin_removal, remove_part
from hermes.memory_server.engine.job_handlers import HANDLERS, JobTools
from hermes.memory_server.engine.jobs import claim_job
from hermes.memory_server.engine.messages import MessageDraft, append_messages, list_messages
from hermes.memory_server.engine.paging import PageRequest
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.summaries import read_summaries
from hermes.memory_server.engine.worker import JobWorker
from hermes.memory_server.faults import Invalid
from tests.memory_server.floor import EMBEDDER, draft
from tests.memory_server.in_file import rows, wait_for_work
from tests.memory_server.serving import Served, inside, running
from tests.memory_server.talking import conclude, held, ids, say, settle

pytestmark = [pytest.mark.contract("9.11"), pytest.mark.processes]
WORD = "abracadabra"
NOW = 1_700_000_000_000_000


def contents(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    told = answer.json()
    return [item["content"] for item in (told["items"] if isinstance(told, dict) else told)]


def listed(http: httpx.Client, **query: Any) -> list[str]:
    return contents(http.post("/sessions/talk/messages/list", params=query))


def test_extensions_are_announced(server: Served) -> None:
    with server.client() as http:
        assert http.get("/health").json()["extensions"] == [*EXTENSIONS]


def found_evidence(http: httpx.Client, **where: Any) -> list[str]:
    answer = http.post("/ext/evidence", json={"query": "Where is the key?", **where})
    assert answer.status_code == 200, answer.text
    return sorted(one["message"]["content"] for one in answer.json()["messages"])


@pytest.mark.contract("7.9")
def test_evidence_of_peers_who_are_alone_comes_from_no_session_with_another(http: httpx.Client) -> None:
    for session, peers in {
        "two": ["ann", "bot"],
        "three": ["ann", "bot", "eve"],
        "left": ["ann", "bot", "eve"],
    }.items():
        http.post("/sessions", json={"id": session, "peers": {peer: {} for peer in peers}}).raise_for_status()
        say(http, session, f"The key of {session} is here.")
    say(http, "two", "I put the key there.", peer="bot")
    say(http, "others", "My key is under the mat.", peer="eve")
    http.request("DELETE", "/sessions/left/peers", json=["eve"]).raise_for_status()
    alone = found_evidence(http, alone=["ann", "bot"])
    assert alone == ["I put the key there.", "The key of two is here."]
    assert found_evidence(http, alone=["ann", "bot"], session_id="three") == []
    assert found_evidence(http, alone=["nobody", "bot"]) == []
    assert found_evidence(http, session_id="three") == ["The key of three is here."]
    heard = [*alone, "The key of left is here.", "The key of three is here."]
    assert found_evidence(http, heard_by="ann") == sorted(heard)


@pytest.mark.contract("7.9")
def test_evidence_has_conclusions_of_the_views_that_no_message_says(http: httpx.Client) -> None:
    say(http, "talk", "The key is here.")
    settle(http)
    conclude(http, "Ann hides the key in the shed.")
    views = [{"observer_id": "ann", "observed_id": "ann"}]
    told = http.post("/ext/evidence", json={"query": "Where is the key?", "views": views}).json()
    assert [one["content"] for one in told["conclusions"]] == ["Ann hides the key in the shed."]
    assert [one["message"]["content"] for one in told["messages"]] == ["The key is here."]
    assert {"score", "certainty", "about"} < told["messages"][0].keys()


@pytest.mark.contract("7.9")
def test_conclusions_that_messages_state_do_not_displace_the_others(http: httpx.Client) -> None:
    say(http, "talk", *(f"The key of room {number} is here." for number in range(30)))
    settle(http)
    conclude(http, "Ann hides the key in the shed.")
    say(http, "talk", *(f"The key of house {number} is here." for number in range(30)))
    settle(http)
    views = [{"observer_id": "ann", "observed_id": "ann"}]
    told = http.post("/ext/evidence", json={"query": "Where is the key of the room?", "views": views}).json()
    assert [one["content"] for one in told["conclusions"]] == ["Ann hides the key in the shed."]


@pytest.mark.parametrize("body", [{}, {"query": "x", "alone": []}, {"query": "x", "limit": 0}])
def test_evidence_refuses_a_body_that_names_nothing(http: httpx.Client, body: dict[str, Any]) -> None:
    assert http.post("/ext/evidence", json=body).status_code == 422


@pytest.mark.contract("7.5")
def test_context_has_each_view_from_its_sessions_and_cards_on_request(http: httpx.Client) -> None:
    http.post("/sessions", json={"id": "three", "peers": {"ann": {}, "bot": {}, "eve": {}}}).raise_for_status()
    say(http, "two", "I keep bees.")
    say(http, "three", "I keep owls.")
    settle(http)
    http.put("/peers/ann/card", json={"peer_card": ["Keeps animals."]}).raise_for_status()
    ann = {"observer_id": "ann", "observed_id": "ann"}
    wheres: list[dict[str, Any]] = [{"card": True}, {"session_id": "three"}, {"alone": ["ann", "bot"]}]
    views = [{**ann, **where} for where in wheres] + [{**ann, "observed_id": "nobody", "card": True}]
    told = http.post("/ext/context", json={"session_id": "two", "tokens": 100, "views": views}).json()
    assert [one["representation"].count("I keep") for one in told["views"]] == [2, 1, 1, 0]
    assert "owls" in told["views"][1]["representation"]
    assert "bees" in told["views"][2]["representation"]
    assert [one["card"] for one in told["views"]] == [["Keeps animals."], None, None, None]
    assert told["summary"] is None


def test_deleted_message_is_found_nowhere_and_the_others_keep_their_order(http: httpx.Client) -> None:
    said = say(http, "talk", "I am one.", f"I like {WORD}.", "I am three.", "I am four.")
    settle(http)
    assert f"I like {WORD}." in held(http, "ann")
    gone = http.delete(f"/ext/sessions/talk/messages/{said[1]['id']}")
    assert gone.json() == {"deleted": 1}
    assert listed(http) == ["I am one.", "I am three.", "I am four."]
    assert listed(http, reverse="true", size=2) == ["I am four.", "I am three."]
    assert listed(http, size=2, page=2) == ["I am four."]
    assert contents(http.post("/search", json={"query": WORD, "limit": 1})) != [f"I like {WORD}."]
    assert http.get(f"/sessions/talk/messages/{said[1]['id']}").status_code == 404
    assert WORD not in held(http, "ann")
    assert contents(http.post("/conclusions/list?reverse=true")) == [
        "ann: I am one.",
        "ann: I am three.",
        "ann: I am four.",
    ]
    shown = http.get("/sessions/talk/context").json()["messages"]
    assert [message["content"] for message in shown] == listed(http)
    say(http, "talk", "I am five.")
    assert listed(http)[-1] == "I am five."
    copy = http.post("/sessions/talk/clone").json()["id"]
    assert contents(http.post(f"/sessions/{copy}/messages/list")) == listed(http)
    assert http.delete(f"/ext/sessions/talk/messages/{said[1]['id']}").status_code == 404


def test_conclusion_with_another_source_outlives_a_deleted_message(http: httpx.Client) -> None:
    first, second = say(http, "talk", "I like tea.", "I like tea.")
    settle(http)
    http.delete(f"/ext/sessions/talk/messages/{first['id']}").raise_for_status()
    [left] = http.post("/conclusions/list").json()["items"]
    assert (left["content"], left["times_derived"]) == ("ann: I like tea.", 1)
    assert ids(http.get(f"/ext/conclusions/{left['id']}/messages")) == [second["id"]]
    http.delete(f"/ext/sessions/talk/messages/{second['id']}").raise_for_status()
    assert contents(http.post("/conclusions/list")) == []


def test_range_is_deleted_from_one_message_to_another(http: httpx.Client) -> None:
    said = [*say(http, "talk", *(f"I own {n}." for n in range(100))), *say(http, "talk", *("x" for _ in range(50)))]
    path = "/ext/sessions/talk/messages"
    backwards = {"first_id": said[9]["id"], "last_id": said[2]["id"]}
    assert http.delete(path, params=backwards).status_code == 422
    assert http.delete(path, params={"first_id": said[0]["id"], "last_id": "nowhere"}).status_code == 404
    inside_it = {"first_id": said[3]["id"], "last_id": said[120]["id"]}
    assert http.delete(path, params=inside_it).json() == {"deleted": 118}
    assert listed(http, size=100) == ["I own 0.", "I own 1.", "I own 2.", *("x" for _ in range(29))]
    settle(http)
    assert contents(http.post("/conclusions/list")) == ["ann: I own 2.", "ann: I own 1.", "ann: I own 0."]


def houses() -> list[MessageDraft]:
    return [draft(f"I own house {n}.", "ann") for n in range(120)]


async def test_range_has_a_bound(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "MAX_REMOVED_MESSAGES", 3)
    made = await database.write(partial(append_messages, workspace="w", session="s", drafts=houses(), at=NOW))
    with pytest.raises(Invalid, match="At most 3"):
        await database.write(lambda tx: begin_removal(tx, "w", "s", made[0].public_id, made[3].public_id, NOW))


async def test_a_worker_finishes_an_interrupted_deletion_of_a_range(
    database: Database,
) -> None:
    made = await database.write(partial(append_messages, workspace="w", session="s", drafts=houses(), at=NOW))
    begun = await database.write(lambda tx: begin_removal(tx, "w", "s", made[0].public_id, made[117].public_id, NOW))
    await database.write(lambda tx: remove_part(tx, begun, NOW))
    worker = JobWorker(database, SystemClock(), EMBEDDER)
    while await worker.work_once():
        pass
    left = await database.read(lambda tx: list_messages(tx, "w", "s", None, PageRequest()))
    assert [row.content for row in left.rows] == ["I own house 118.", "I own house 119."]
    held_now = await database.read(lambda tx: list_conclusions(tx, "w", None, PageRequest()))
    assert [row.content for row in held_now.rows] == ["ann: I own house 119.", "ann: I own house 118."]


@pytest.mark.parametrize("kind", ["representation", "summary"])
async def test_learning_in_progress_from_a_deleted_message_is_discarded(database: Database, kind: str) -> None:
    said = [draft(f"I like {WORD} number {n}.", "ann") for n in range(20)]
    made = await database.write(partial(append_messages, workspace="w", session="s", drafts=said, at=NOW))
    job = await database.write(lambda tx: claim_job(tx, "me", kind, NOW))
    assert job is not None
    prepared = await HANDLERS[kind].prepare(JobTools(database, EMBEDDER), job)
    begun = await database.write(lambda tx: begin_removal(tx, "w", "s", made[0].public_id, made[9].public_id, NOW))
    await database.write(lambda tx: remove_part(tx, begun, NOW))
    await database.write(lambda tx: HANDLERS[kind].commit(tx, job, prepared, NOW))

    def kept(tx: Tx) -> str:
        texts = [row.content for row in read_summaries(tx, get_session(tx, "w", "s").id).values()]
        return "\n".join([*texts, *(row.content for row in list_conclusions(tx, "w", None, PageRequest()).rows)])

    assert await database.read(kept) == ""


def test_summary_that_covered_a_deleted_message_is_made_again_without_it(http: httpx.Client) -> None:
    said = say(http, "talk", f"I like {WORD}.", *(f"I own house {n}." for n in range(21)))
    settle(http)
    assert WORD in http.get("/sessions/talk/summaries").text
    http.delete(f"/ext/sessions/talk/messages/{said[0]['id']}").raise_for_status()
    assert WORD not in http.get("/sessions/talk/summaries").text
    settle(http)
    again = http.get("/sessions/talk/summaries").json()["short_summary"]["content"]
    assert "I own house 3." in again
    assert WORD not in again


def fill(http: httpx.Client) -> None:
    """Let ann use the word in every way while ben listens, and let ben say something too."""
    people = {"ann": {"observe_others": True}, "ben": {"observe_others": True}}
    http.post("/sessions", json={"id": "talk", "peers": people, "scopes": ["x"]}).raise_for_status()
    say(http, "talk", "I keep bees.", peer="ben")
    say(http, "talk", *(f"I know {WORD} {n}." for n in range(60)))
    say(http, "talk", "I know nothing.", peer="ben")
    http.put("/peers/ann/card", json={"peer_card": [WORD]}).raise_for_status()
    http.put("/peers/ben/card?target=ann", json={"peer_card": [WORD]}).raise_for_status()
    http.put("/peers/ann", json={"metadata": {"word": WORD}}).raise_for_status()
    conclude(http, f"ann says {WORD}")


def told(http: httpx.Client) -> str:
    """Return the responses of all routes that could reveal ann."""
    asked: list[httpx.Response] = [
        http.post("/search", json={"query": WORD}),
        http.post("/sessions/talk/search", json={"query": WORD}),
        http.post("/sessions/talk/messages/list?size=100"),
        http.get("/sessions/talk/context"),
        http.get("/sessions/talk/summaries"),
        http.get("/sessions/talk/peers"),
        http.post("/peers/list", json={"kind": "all"}),
        http.post("/conclusions/list?size=100"),
        http.post("/peers/ben/representation", json={"target": "ann"}),
        http.post("/peers/ben/representation", json={"scope": "x"}),
        http.post("/peers/ann/search", json={"query": WORD}),
        http.post("/peers/ann/sessions"),
        http.post("/chat", json={"query": WORD}),
        http.get("/peers/ben/card?target=ann"),
    ]
    assert {answer.status_code for answer in asked} == {200}, [answer.text for answer in asked]
    return "\n".join(answer.text for answer in asked)


def test_deleted_peer_is_silent_at_once_although_nobody_removes_it(quiet: httpx.Client) -> None:
    fill(quiet)
    assert told(quiet).count(WORD) > 10
    assert quiet.delete("/ext/peers/ann").status_code == 202
    assert WORD not in told(quiet)
    assert '"ann"' not in told(quiet)
    assert listed(quiet) == ["I keep bees.", "I know nothing."]
    assert quiet.post("/sessions/talk/messages/list").json()["total"] == 2
    assert contents(quiet.post("/search", json={"query": "bees", "limit": 1})) == ["I keep bees."]
    assert quiet.delete("/ext/peers/ann").status_code == 404
    assert quiet.get("/peers/ann/card").status_code == 404
    assert quiet.get("/queue/status?sender_id=ann").json()["total_work_units"] == 0
    say(quiet, "talk", "I am somebody else.")
    assert listed(quiet) == ["I keep bees.", "I know nothing.", "I am somebody else."]
    assert quiet.post("/peers", json={"id": "ann"}).json()["metadata"] == {}


def test_scope_is_not_deleted_as_a_peer(quiet: httpx.Client) -> None:
    quiet.post("/scopes", json={"id": "x"}).raise_for_status()
    assert quiet.delete("/ext/peers/scope.x").status_code == 422


def test_deleted_peer_leaves_nothing_in_the_file(tmp_path: Path) -> None:
    with running(tmp_path) as served:
        with inside(served, "w") as http:
            fill(http)
            settle(http)
            http.post("/peers", json={"id": "ann"}, headers={"Idempotency-Key": "k"}).raise_for_status()
            assert WORD in held(http, "ben", target="ann")
            http.delete("/ext/peers/ann").raise_for_status()
            wait_for_work(tmp_path)
            assert held(http, "ben") != ""
            assert "I keep bees." in http.get("/sessions/talk/summaries").text
            http.delete("/ext/peers/ben").raise_for_status()
            wait_for_work(tmp_path)
    left = rows(tmp_path)
    assert {name: left.get(name) for name in ("peers", "messages", "memberships", "collections", "conclusions")} == {
        "peers": 1,
        "messages": None,
        "memberships": None,
        "collections": None,
        "conclusions": None,
    }, "the scope is left"
    for name in ("cards", "answers", "conclusion_messages", "message_vectors", "message_facts", "summaries"):
        assert name not in left
    assert WORD.encode() not in (tmp_path / FILE).read_bytes()


def test_conclusion_names_its_messages_and_a_message_its_conclusions(http: httpx.Client) -> None:
    http.post("/sessions", json={"id": "talk", "peers": {"ann": {}, "ben": {"observe_others": True}}})
    first, other, second = say(http, "talk", "I like tea. I live in Malta.", "What a day!", "I like tea.")
    settle(http)
    [tea] = http.post(
        "/conclusions/query", json={"query": "tea", "filters": {"observer": "ben", "observed": "ann"}, "top_k": 1}
    ).json()
    assert ids(http.get(f"/ext/conclusions/{tea['id']}/messages")) == [first["id"], second["id"]]
    concluded = http.get(f"/ext/sessions/talk/messages/{first['id']}/conclusions").json()["items"]
    assert sorted((one["observer_id"], one["content"]) for one in concluded) == [
        ("ann", "ann: I like tea."),
        ("ann", "ann: I live in Malta."),
        ("ben", "ann: I like tea."),
        ("ben", "ann: I live in Malta."),
    ]
    assert ids(http.get(f"/ext/sessions/talk/messages/{other['id']}/conclusions")) == []
    [stored] = conclude(http, "ann is kind")
    assert ids(http.get(f"/ext/conclusions/{stored['id']}/messages")) == []
    assert http.get("/ext/conclusions/nowhere/messages").status_code == 404


def test_edited_conclusion_keeps_its_id_and_what_it_said_before(http: httpx.Client) -> None:
    say(http, "talk", "I live in Malta.")
    settle(http)
    http.post("/schedule_dream", json={"observer": "ann", "dream_type": "omni"}).raise_for_status()
    settle(http)
    assert http.get("/peers/ann/card").json()["peer_card"] == ["ann: I live in Malta."]
    [before] = http.post("/conclusions/list").json()["items"]
    path = f"/ext/conclusions/{before['id']}"
    edited = http.put(path, json={"content": "ann moved to Gozo"}).json()
    assert edited == {**before, "content": "ann moved to Gozo"}
    assert http.put(path, json={"content": "ann moved to Gozo"}).json() == edited, "nothing changes"
    http.put(path, json={"content": "ann lives on Gozo"}).raise_for_status()
    assert contents(http.get(f"{path}/versions")) == ["ann: I live in Malta.", "ann moved to Gozo"]
    assert "Malta" not in held(http, "ann")
    query = {"query": "Gozo", "filters": {"observer": "ann", "observed": "ann"}}
    assert contents(http.post("/conclusions/query", json=query)) == ["ann lives on Gozo"]
    assert not http.get("/peers/ann/card").json()["peer_card"]
    assert http.put(path, json={"content": ""}).status_code == 422
    http.delete(f"/conclusions/{before['id']}").raise_for_status()
    assert http.get(f"{path}/versions").status_code == 404
