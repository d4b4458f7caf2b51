"""Two peers that are one person become one, and two again if that was a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.tables import merge_rows, merges
from hermes.memory_server.engine.merging import UNDO_WINDOW_MICROSECONDS, begin_merge, begin_undoing, forget_merges
from hermes.memory_server.engine.peers import ensure_peer
from hermes.memory_server.faults import Conflict
from tests.memory_server.in_file import wait_for_work
from tests.memory_server.serving import Served
from tests.memory_server.talking import held, ids, say, settle

pytestmark = [pytest.mark.contract("9.13"), pytest.mark.processes]
MESSAGE_COUNT = 60


def fill(http: httpx.Client) -> None:
    """Create ann, who is also ann-phone; ben hears both."""
    for session, peer in (("desk", "ann"), ("phone", "ann-phone")):
        people = {peer: {}, "ben": {"observe_others": True}}
        http.post("/sessions", json={"id": session, "peers": people}).raise_for_status()
    say(http, "desk", "I live in Malta.", peer="ann")
    say(http, "phone", *(f"I own stamp {n}." for n in range(MESSAGE_COUNT)), peer="ann-phone")
    say(http, "both", "I am at the desk.", peer="ann")
    say(http, "both", "I am on the way.", peer="ann-phone")
    http.put("/peers/ann/card", json={"peer_card": ["ann's own"]}).raise_for_status()
    http.put("/peers/ann-phone/card", json={"peer_card": ["the phone's"]}).raise_for_status()
    http.put("/peers/ben/card?target=ann-phone", json={"peer_card": ["ben on the phone"]}).raise_for_status()
    http.put("/peers/ann-phone", json={"metadata": {"device": "phone"}}).raise_for_status()
    settle(http)


def state(http: httpx.Client) -> dict[str, Any]:
    """Return everything that is shown of both."""
    sessions = ("desk", "phone", "both")
    return {
        "peers": sorted((peer["id"], str(peer["metadata"])) for peer in http.post("/peers/list").json()["items"]),
        "authors": [
            [message["peer_id"] for message in http.post(f"/sessions/{s}/messages/list?size=100").json()["items"]]
            for s in sessions
        ],
        "members": [sorted(ids(http.get(f"/sessions/{s}/peers"))) for s in sessions],
        "conclusions": sorted(
            (one["id"], one["observer_id"], one["observed_id"])
            for page in (1, 2)
            for one in http.post(f"/conclusions/list?size=100&page={page}").json()["items"]
        ),
        "cards": [http.get(f"/peers/{p}/card").json() for p in ("ann", "ann-phone")]
        + [http.get(f"/peers/ben/card?target={p}").json() for p in ("ann", "ann-phone")],
        "found": [
            [m["content"] for m in http.post(f"/peers/{p}/search", json={"query": "stamp 7", "limit": 1}).json()]
            for p in ("ann", "ann-phone")
        ],
    }


def merge(http: httpx.Client, folder: Path) -> dict[str, Any]:
    told = http.post("/ext/peers/ann-phone/merge", json={"into": "ann"})
    assert told.status_code == 202, told.text
    wait_for_work(folder)
    found: list[dict[str, Any]] = http.get("/ext/merges").json()["items"]
    assert found[-1] == {**told.json(), "state": "done"}
    return found[-1]


def test_preview_says_what_would_move_and_moves_nothing(http: httpx.Client, server: Served) -> None:
    fill(http)
    before = state(http)
    told = http.get("/ext/peers/ann-phone/merge", params={"into": "ann"}).json()
    assert told == {"messages": MESSAGE_COUNT + 1, "sessions": 2, "conclusions": 2 * MESSAGE_COUNT + 1, "cards": 2}
    assert state(http) == before


def test_merged_peer_is_the_other_everywhere_and_its_name_leads_there(http: httpx.Client, server: Served) -> None:
    fill(http)
    merge(http, server.folder)
    assert [peer["id"] for peer in http.post("/peers/list").json()["items"]] == ["ann", "ben"]
    shown = state(http)
    assert shown["authors"] == [["ann"], ["ann"] * MESSAGE_COUNT, ["ann", "ann"]]
    assert shown["members"] == [["ann", "ben"], ["ann", "ben"], ["ann"]]
    assert shown["cards"] == [
        {"peer_card": ["ann's own"]},
        {"peer_card": ["ann's own"]},
        {"peer_card": ["ben on the phone"]},
        {"peer_card": ["ben on the phone"]},
    ]
    assert shown["found"] == [["I own stamp 7."], ["I own stamp 7."]]
    assert {(one[1], one[2]) for one in shown["conclusions"]} == {("ann", "ann"), ("ben", "ann")}
    assert "I own stamp 7." in held(http, "ann", search_query="stamp 7")
    assert held(http, "ann-phone") == held(http, "ann")
    say(http, "phone", "I collect old maps of Malta.", peer="ann-phone")
    settle(http)
    assert http.post("/sessions/phone/messages/list?reverse=true").json()["items"][0]["peer_id"] == "ann"
    assert "I collect old maps of Malta." in held(http, "ann")
    assert http.post("/peers", json={"id": "ann-phone", "metadata": {"x": 1}}).json()["id"] == "ann"
    assert http.post("/peers", json={"id": "ann"}).json()["metadata"] == {}
    assert [peer["id"] for peer in http.post("/peers/list").json()["items"]] == ["ann", "ben"]


def test_filter_on_a_name_that_was_merged_finds_what_is_under_the_other_now(http: httpx.Client, server: Served) -> None:
    fill(http)
    merge(http, server.folder)
    http.post("/peers", json={"id": "third"}).raise_for_status()
    again = http.post("/ext/peers/ann/merge", json={"into": "third"})
    assert again.status_code == 202
    wait_for_work(server.folder)
    for asked in ("ann-phone", ["ann-phone"], {"in": ["nobody", "ann-phone"]}):
        assert _count(http, "/sessions/phone/messages/list", {"peer_id": asked}) == MESSAGE_COUNT
        assert _count(http, "/sessions/phone/messages/list", {"OR": [{"peer_id": asked}]}) == MESSAGE_COUNT
        assert _count(http, "/sessions/list", {"peer_id": asked}) == 3
        assert _count(http, "/peers/ben/sessions", {"peer_id": asked}) == 2
        assert _count(http, "/peers/list", {"id": asked}) == 1
        for key in ("observed", "observed_id"):
            assert _count(http, "/conclusions/list", {key: asked}) == _count(http, "/conclusions/list", {})
        assert _count(http, "/conclusions/list", {"observer_id": asked, "observed": "third"}) > MESSAGE_COUNT
    assert _count(http, "/sessions/phone/messages/list", {"peer_id": {"ne": "ann-phone"}}) == 0
    assert _count(http, "/sessions/list", {"NOT": [{"peer_id": "ann-phone"}]}) == 0
    found = http.post("/search", json={"query": "stamp 7", "filters": {"peer_id": "ann-phone"}, "limit": 1}).json()
    assert [(message["peer_id"], message["content"]) for message in found] == [("third", "I own stamp 7.")]
    pair = {"observer": "ann-phone", "observed": "ann", "AND": [{"observed_id": "ann-phone"}]}
    assert len(http.post("/conclusions/query", json={"query": "stamp", "filters": pair, "top_k": 3}).json()) == 3


def _count(http: httpx.Client, path: str, filters: dict[str, Any]) -> int:
    answer = http.post(path, json={"filters": filters})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["total"])


def test_undone_merge_leaves_everything_as_it_was(http: httpx.Client, server: Served) -> None:
    fill(http)
    before = state(http)
    made = merge(http, server.folder)
    assert state(http) != before
    say(http, "desk", "I said this in between.", peer="ann-phone")
    settle(http)
    undone = http.delete(f"/ext/merges/{made['id']}")
    assert (undone.status_code, undone.json()["state"]) == (202, "undoing")
    wait_for_work(server.folder)
    assert http.get("/ext/merges").json()["items"][-1]["state"] == "undone"
    assert http.delete(f"/ext/merges/{made['id']}").status_code == 409
    last = http.post("/sessions/desk/messages/list?reverse=true").json()["items"][0]
    assert (last["content"], last["peer_id"]) == ("I said this in between.", "ann"), "it stays where it was written"
    http.delete(f"/ext/sessions/desk/messages/{last['id']}").raise_for_status()
    assert state(http) == before


def test_what_cannot_be_merged_is_refused(quiet: httpx.Client) -> None:
    fill_names = ("ann", "ann-phone", "third")
    for name in fill_names:
        quiet.post("/peers", json={"id": name}).raise_for_status()
    quiet.post("/scopes", json={"id": "x"}).raise_for_status()
    for peer, into, status in (
        ("ann", "ann", 422),
        ("ann", "nobody", 404),
        ("nobody", "ann", 404),
        ("scope.x", "ann", 422),
    ):
        assert quiet.get(f"/ext/peers/{peer}/merge", params={"into": into}).status_code == status
        assert quiet.post(f"/ext/peers/{peer}/merge", json={"into": into}).status_code == status
    first = quiet.post("/ext/peers/ann-phone/merge", json={"into": "ann"}, headers={"Idempotency-Key": "k"})
    again = quiet.post("/ext/peers/ann-phone/merge", json={"into": "ann"}, headers={"Idempotency-Key": "k"})
    assert (first.status_code, again.content) == (202, first.content)
    assert quiet.post("/ext/peers/ann/merge", json={"into": "third"}).status_code == 409, "it is under way"
    assert quiet.delete(f"/ext/merges/{first.json()['id']}").status_code == 409, "it is not done"
    assert quiet.delete("/ext/merges/nowhere").status_code == 404


def test_merges_follow_each_other_and_are_undone_in_turn(http: httpx.Client, server: Served) -> None:
    say(http, "s", "I am one.", peer="a")
    say(http, "s", "I am two.", peer="b")
    say(http, "s", "I am three.", peer="c")
    settle(http)
    made = []
    for peer, into in (("a", "b"), ("b", "c")):
        made.append(http.post(f"/ext/peers/{peer}/merge", json={"into": into}).json()["id"])
        wait_for_work(server.folder)
    assert held(http, "a") == held(http, "c")
    assert http.delete(f"/ext/merges/{made[0]}").status_code == 409
    for merge_id in reversed(made):
        http.delete(f"/ext/merges/{merge_id}").raise_for_status()
        wait_for_work(server.folder)
    authors = [message["peer_id"] for message in http.post("/sessions/s/messages/list").json()["items"]]
    assert authors == ["a", "b", "c"]


def test_deleting_a_peer_takes_those_along_that_became_a_part_of_it(http: httpx.Client, server: Served) -> None:
    fill(http)
    merge(http, server.folder)
    assert http.delete("/ext/peers/ann-phone").status_code == 409
    http.delete("/ext/peers/ann").raise_for_status()
    assert ids(http.post("/peers/list")) == ["ben"]
    assert ids(http.get("/sessions/both/peers")) == []
    wait_for_work(server.folder)
    assert http.get("/ext/merges").json()["items"] == []
    say(http, "phone", "I am new.", peer="ann-phone")
    assert ids(http.post("/peers/list")) == ["ben", "ann-phone"]


async def test_merge_can_be_undone_for_seven_days(database: Database) -> None:
    def make(tx: Tx) -> str:
        for name in ("ann", "phone"):
            ensure_peer(tx, "w", name, 0, metadata=None, configuration=None)
        public_id = str(begin_merge(tx, "w", "phone", "ann", at=0).public_id)
        tx.execute(merges.update().values(state="done"))
        tx.execute(merge_rows.insert(), [{"merge_id": 1, "kind": "message", "row_id": n} for n in range(1001)])
        return public_id

    made = await database.write(make)
    assert not await database.write(lambda tx: forget_merges(tx, UNDO_WINDOW_MICROSECONDS))
    with pytest.raises(Conflict, match="older than seven days"):
        await database.write(lambda tx: begin_undoing(tx, "w", made, UNDO_WINDOW_MICROSECONDS + 1))
    assert await database.write(lambda tx: forget_merges(tx, UNDO_WINDOW_MICROSECONDS + 1))
    assert not await database.write(lambda tx: forget_merges(tx, UNDO_WINDOW_MICROSECONDS + 1))
    assert await database.read(lambda tx: tx.execute(merge_rows.select()).all()) == []
    assert (await database.write(lambda tx: begin_undoing(tx, "w", made, UNDO_WINDOW_MICROSECONDS))).state == "undoing"
