"""Merges concurrent with other merges, deletions and imports: nothing is lost or mixed."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.schema import FILE
from hermes.memory_server.db.tables import merge_rows, merges
from hermes.memory_server.engine.merging import UNDO_WINDOW_MICROSECONDS, begin_merge, forget_merges
from hermes.memory_server.engine.peers import ensure_peer
from tests.memory_server.in_file import rows, wait_for_work
from tests.memory_server.serving import Served, inside, kill, running, start
from tests.memory_server.talking import ids, say, settle
from tests.scale import scale

pytestmark = [pytest.mark.contract("9.13"), pytest.mark.processes]


def merge(http: httpx.Client, peer: str, into: str, folder: Path | None = None) -> str:
    """Merge a peer and return the merge's id; wait for it if the folder is given."""
    told = http.post(f"/ext/peers/{peer}/merge", json={"into": into})
    assert told.status_code == 202, told.text
    if folder is not None:
        wait_for_work(folder)
    return str(told.json()["id"])


def undo(http: httpx.Client, merge_id: str, folder: Path) -> None:
    assert http.delete(f"/ext/merges/{merge_id}").status_code == 202
    wait_for_work(folder)


def authors(http: httpx.Client, session: str = "s") -> list[str]:
    return [message["peer_id"] for message in http.post(f"/sessions/{session}/messages/list").json()["items"]]


def conclude(http: httpx.Client, observer: str, observed: str, content: str) -> None:
    new = {"content": content, "observer_id": observer, "observed_id": observed}
    http.post("/conclusions", json={"conclusions": [new]}).raise_for_status()


def held(http: httpx.Client) -> list[tuple[str, str, str]]:
    pages = [http.post(f"/conclusions/list?size=100&page={page}").json()["items"] for page in range(1, 8)]
    return sorted((one["observer_id"], one["observed_id"], one["content"]) for page in pages for one in page)


def detail(answer: httpx.Response) -> str:
    assert answer.status_code == 409, answer.text
    return str(answer.json()["detail"])


def make_peers(http: httpx.Client, *names: str) -> None:
    for name in names:
        http.post("/peers", json={"id": name}).raise_for_status()


def test_peer_that_is_being_merged_is_not_deleted_before_that_has_ended(quiet: httpx.Client) -> None:
    say(quiet, "s", "I am at the desk.", peer="ann")
    say(quiet, "s", "I am on the way.", peer="ann-phone")
    make_peers(quiet, "ben")
    running_merge = merge(quiet, "ann-phone", "ann")
    for peer in ("ann", "ann-phone"):
        told = detail(quiet.delete(f"/ext/peers/{peer}"))
        assert running_merge in told
        assert "running" in told
    assert ids(quiet.post("/peers/list")) == ["ann", "ann-phone", "ben"]
    assert quiet.delete("/ext/peers/ben").status_code == 202, "it has nothing to do with the merge"


def test_peer_of_a_merge_that_is_being_undone_is_deleted_after_that(tmp_path: Path) -> None:
    with running(tmp_path) as served, inside(served, "w") as http:
        say(http, "s", "I am at the desk.", peer="ann")
        say(http, "s", "I am on the way.", peer="ann-phone")
        settle(http)
        made = merge(http, "ann-phone", "ann", tmp_path)
    with running(tmp_path, "--no-worker") as served, inside(served, "w") as http:
        assert http.delete(f"/ext/merges/{made}").status_code == 202
        for peer in ("ann", "ann-phone"):
            assert "undoing" in detail(http.delete(f"/ext/peers/{peer}"))
        assert "undoing" in detail(http.post("/ext/peers/ann/merge", json={"into": "ann-phone"}))
    with running(tmp_path) as served, inside(served, "w") as http:
        wait_for_work(tmp_path)
        assert authors(http) == ["ann", "ann-phone"]
        http.delete("/ext/peers/ann").raise_for_status()
        wait_for_work(tmp_path)
        assert authors(http) == ["ann-phone"]
        assert {one[:2] for one in held(http)} == {("ann-phone", "ann-phone")}


def test_merge_is_undone_after_a_later_one_into_the_same_peer(http: httpx.Client, server: Served) -> None:
    make_peers(http, "a", "b", "d")
    conclude(http, "d", "a", "d knows a")
    before = held(http)
    first = merge(http, "a", "b", server.folder)
    second = merge(http, "d", "b", server.folder)
    assert held(http) == [("b", "b", "d knows a")]
    assert second in detail(http.delete(f"/ext/merges/{first}"))
    undo(http, second, server.folder)
    undo(http, first, server.folder)
    assert held(http) == before


def test_merge_is_undone_after_a_later_one_that_moved_the_same_on(http: httpx.Client, server: Served) -> None:
    make_peers(http, "a", "b", "d", "e", "x", "y")
    conclude(http, "d", "a", "d knows a")
    http.put("/peers/d/card?target=a", json={"peer_card": ["d on a"]}).raise_for_status()
    first = merge(http, "a", "b", server.folder)
    second = merge(http, "d", "e", server.folder)
    unrelated = merge(http, "x", "y", server.folder)
    assert second in detail(http.delete(f"/ext/merges/{first}"))
    undo(http, second, server.folder)
    undo(http, first, server.folder)
    assert held(http) == [("d", "a", "d knows a")]
    assert http.get("/peers/d/card?target=a").json() == {"peer_card": ["d on a"]}
    undo(http, unrelated, server.folder)


def test_merges_that_have_nothing_in_common_are_undone_in_any_order(http: httpx.Client, server: Served) -> None:
    make_peers(http, "a", "b", "x", "y")
    conclude(http, "a", "a", "a is one")
    conclude(http, "x", "x", "x is one")
    before = held(http)
    made = [merge(http, peer, into, server.folder) for peer, into in (("a", "b"), ("x", "y"))]
    for merge_id in made:
        undo(http, merge_id, server.folder)
    assert held(http) == before


def test_card_that_was_written_since_a_merge_stays_where_it_was_written(http: httpx.Client, server: Served) -> None:
    make_peers(http, "ann", "ann-phone")
    http.put("/peers/ann-phone/card", json={"peer_card": ["the phone's"]}).raise_for_status()
    made = merge(http, "ann-phone", "ann", server.folder)
    http.put("/peers/ann/card", json={"peer_card": ["written since"]}).raise_for_status()
    undo(http, made, server.folder)
    assert http.get("/peers/ann/card").json() == {"peer_card": ["written since"]}
    assert http.get("/peers/ann-phone/card").json() == {"peer_card": None}


def test_stay_that_began_since_a_merge_is_not_taken_for_one_that_it_moved(tmp_path: Path) -> None:
    with running(tmp_path) as served, inside(served, "w") as http:
        make_peers(http, "ann")
        http.post("/sessions", json={"id": "old", "peers": {"ann-phone": {}}}).raise_for_status()
        made = merge(http, "ann-phone", "ann", tmp_path)
        http.delete("/sessions/old").raise_for_status()
        wait_for_work(tmp_path)
        http.post("/sessions", json={"id": "new", "peers": {"ann": {}}}).raise_for_status()
        undo(http, made, tmp_path)
        assert ids(http.get("/sessions/new/peers")) == ["ann"]


def test_what_either_peer_heard_is_heard_by_the_merged_one(http: httpx.Client, server: Served) -> None:
    def heard(peer: str) -> list[str]:
        asked = {"query": "news", "limit": 10, "filters": {"peer_perspective": peer}}
        return sorted(message["content"] for message in http.post("/search", json=asked).json())

    make_peers(http, "ann", "ann-phone")
    for news, comes in (("news 1", "ann-phone"), ("news 2", "ann"), ("news 3", None)):
        say(http, "s", news, peer="ben")
        if comes is not None:
            http.post("/sessions/s/peers", json={comes: {}}).raise_for_status()
    before = [heard("ann"), heard("ann-phone")]
    assert before == [["news 3"], ["news 2", "news 3"]]
    made = merge(http, "ann-phone", "ann", server.folder)
    assert heard("ann") == ["news 2", "news 3"]
    assert sorted(ids(http.get("/sessions/s/peers"))) == ["ann", "ben"]
    undo(http, made, server.folder)
    assert [heard("ann"), heard("ann-phone")] == before
    assert sorted(ids(http.get("/sessions/s/peers"))) == ["ann", "ann-phone", "ben"]


def test_peer_removed_from_a_session_after_a_merge_stays_out_after_its_undo(http: httpx.Client, server: Served) -> None:
    make_peers(http, "ann", "ann-phone")
    http.post("/sessions", json={"id": "s", "peers": {"ann": {}, "ann-phone": {}, "ben": {}}}).raise_for_status()
    made = merge(http, "ann-phone", "ann", server.folder)
    http.request("DELETE", "/sessions/s/peers", json=["ann"]).raise_for_status()
    undo(http, made, server.folder)
    assert ids(http.get("/sessions/s/peers")) == ["ben"]


def test_merge_is_undone_although_a_third_peer_of_its_conclusions_was_deleted(
    http: httpx.Client, server: Served
) -> None:
    make_peers(http, "a", "b", "d")
    conclude(http, "d", "a", "d knows a")
    conclude(http, "a", "a", "a knows itself")
    http.put("/peers/d/card?target=a", json={"peer_card": ["d on a"]}).raise_for_status()
    made = merge(http, "a", "b", server.folder)
    http.delete("/ext/peers/d").raise_for_status()
    undo(http, made, server.folder)
    assert http.get("/ext/merges").json()["items"][-1]["state"] == "undone"
    assert held(http) == [("a", "a", "a knows itself")]


def state(http: httpx.Client) -> dict[str, Any]:
    """Return everything that is shown of all peers."""
    said = [http.post(f"/sessions/s/messages/list?size=100&page={page}").json()["items"] for page in range(1, 8)]
    return {
        "said": [(message["peer_id"], message["content"]) for page in said for message in page],
        "held": held(http),
        "members": sorted(ids(http.get("/sessions/s/peers"))),
        "peers": ids(http.post("/peers/list")),
    }


@pytest.mark.stress
def test_merge_undo_and_deletion_complete_after_kills(tmp_path: Path) -> None:
    chance = random.Random(5)

    def killed_often() -> None:
        """Start servers that work on it, and kill each midway; their leases expire immediately."""
        for _ in range(scale(1, 15)):
            served = start(tmp_path)
            time.sleep(chance.uniform(0.0, 0.3))  # not to wait for anything: it is the moment of the kill
            kill(served)
            with closing(sqlite3.connect(tmp_path / FILE)) as file, file:
                file.execute("UPDATE jobs SET lease_until = 0 WHERE state = 'running'")

    def change(method: str, path: str, body: Any = None) -> dict[str, Any]:
        with running(tmp_path, "--no-worker") as served, inside(served, "w") as http:
            told: dict[str, Any] = http.request(method, path, json=body).raise_for_status().json()
        killed_often()
        with running(tmp_path) as served, inside(served, "w") as http:
            wait_for_work(tmp_path)
            return {**told, "state": state(http)}

    with running(tmp_path) as served, inside(served, "w") as http:
        for turn in range(6):
            for peer in ("ann", "ann-phone"):
                say(http, "s", *(f"I own stamp {turn} {n}." for n in range(50)), peer=peer)
        settle(http)
        before = state(http)
    merged = change("POST", "/ext/peers/ann-phone/merge", {"into": "ann"})
    assert {author for author, _ in merged["state"]["said"]} == {"ann"}
    assert [text for _, text in merged["state"]["said"]] == [text for _, text in before["said"]]
    assert change("DELETE", f"/ext/merges/{merged['id']}")["state"] == before
    left = change("DELETE", "/ext/peers/ann-phone")["state"]
    assert left["said"] == [one for one in before["said"] if one[0] == "ann"]
    assert left["held"] == [one for one in before["held"] if "ann-phone" not in one[:2]]
    assert (left["members"], left["peers"]) == (["ann"], ["ann"])
    rows(tmp_path)


def take(http: httpx.Client, section: str, *items: dict[str, Any]) -> dict[str, Any]:
    answer = http.post(f"/ext/import/{section}", json={"items": list(items)})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_import_under_a_name_that_was_merged_goes_to_the_other(http: httpx.Client, server: Served) -> None:
    say(http, "s", "I am at the desk.", peer="ann")
    say(http, "s", "I am on the way.", peer="ann-phone")
    settle(http)
    made = merge(http, "ann-phone", "ann", server.folder)
    when = "2026-01-01T00:00:00Z"
    new = {"id": "ann-phone", "metadata": {"from": "file"}, "created_at": when}
    assert take(http, "peers", new) == {"added": 0, "present": 1, "refused": []}
    said = {"id": "m1", "session_id": "s", "peer_id": "ann-phone", "seq": 9, "content": "Imported.", "created_at": when}
    assert take(http, "messages", said)["added"] == 1
    assert ids(http.post("/peers/list")) == ["ann"]
    assert authors(http) == ["ann", "ann", "ann"]
    undo(http, made, server.folder)
    assert authors(http) == ["ann", "ann-phone", "ann"], "what was imported in between stays where it was written"
    assert ids(http.post("/peers/list")) == ["ann", "ann-phone"]


def test_undo_is_refused_when_another_peer_has_the_name(tmp_path: Path) -> None:
    with running(tmp_path) as served, inside(served, "w") as http:
        make_peers(http, "ann", "ann-phone")
        made = merge(http, "ann-phone", "ann", tmp_path)
        with closing(sqlite3.connect(tmp_path / FILE)) as file, file:  # as imports of earlier versions did
            given = "SELECT 'u', workspace_id, 'ann-phone', 'peer', created_at FROM peers WHERE name = 'ann'"
            file.execute(f"INSERT INTO peers (uid, workspace_id, name, kind, created_at) {given}")
        assert "Another peer is named ann-phone now" in detail(http.delete(f"/ext/merges/{made}"))
        assert ids(http.post("/peers/list")) == ["ann", "ann-phone"]
        http.delete("/ext/peers/ann-phone").raise_for_status()
        undo(http, made, tmp_path)
        assert ids(http.post("/peers/list")) == ["ann", "ann-phone"]


@pytest.mark.parametrize("state", ["running", "undoing"])
async def test_what_a_merge_noted_is_kept_while_it_is_under_way(database: Database, state: str) -> None:
    def make(tx: Tx) -> None:
        for name in ("ann", "phone"):
            ensure_peer(tx, "w", name, 0, metadata=None, configuration=None)
        begin_merge(tx, "w", "phone", "ann", at=0)
        tx.execute(merges.update().values(state=state))
        tx.execute(merge_rows.insert(), [{"merge_id": 1, "kind": "message", "row_id": 1}])

    await database.write(make)
    assert not await database.write(lambda tx: forget_merges(tx, UNDO_WINDOW_MICROSECONDS + 1))
    assert len(await database.read(lambda tx: tx.execute(merge_rows.select()).all())) == 1
