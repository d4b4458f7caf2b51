"""A transferred memory is the same on the new server, however often the transfer was interrupted."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.memory_server.serving import Served, inside
from tests.memory_server.talking import held, say, settle
from tests.scale import scale
from tests.transfer.carrying import Cut, bring, export, items, tear
from tests.transfer.filling import MESSAGES, change, fill, shown

pytestmark = [pytest.mark.contract("9.12"), pytest.mark.processes]
CUTS = 10


def test_interrupted_transfer_between_our_servers_is_complete(
    old: Served, new: Served, filled: str, tmp_path: Path
) -> None:
    with inside(old, filled) as http:
        change(http)
        http.post("/webhooks", json={"url": "https://example.org/hook"}).raise_for_status()
    chance = random.Random(7)
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    for _ in range(CUTS):
        with pytest.raises(Cut):
            export(old, filled, first, requests=chance.randrange(1, 8))
        tear(tmp_path / "first.jsonl.part", chance)
    report = export(old, filled, first)
    assert not (tmp_path / "first.jsonl.part").exists()
    for _ in range(CUTS):
        with pytest.raises(Cut):
            bring(new, first, requests=chance.randrange(0, 3), after_reply=chance.random() < 0.5)
    told = bring(new, first)
    assert (told["refused"], told["not_carried"], told["not_in_file"]) == (0, {}, {})
    assert {name: told["carried"].get(name, 0) + told["present"].get(name, 0) for name in report["counts"]} == report[
        "counts"
    ]
    assert not (tmp_path / "first.jsonl.progress").exists()
    export(new, filled, second)
    before, after = items(first), items(second)
    for section in before:
        assert after[section] == before[section], section
    assert len(before["messages"]) == MESSAGES - 1 + 18
    for section in before:
        assert before[section], f"{section} is tried too"


def test_imported_memory_can_be_searched_and_continued(old: Served, new: Served, filled: str, tmp_path: Path) -> None:
    export(old, filled, tmp_path / "e.jsonl")
    bring(new, tmp_path / "e.jsonl")
    with inside(old, filled) as theirs, inside(new, filled) as ours:
        asked = {"query": "house 77", "limit": 5}
        assert [m["id"] for m in ours.post("/search", json=asked).json()] == [
            m["id"] for m in theirs.post("/search", json=asked).json()
        ]
        assert held(ours, "carl") == held(theirs, "carl")
        assert ours.get("/queue/status").json()["total_work_units"] == 0, "nothing is learnt again"
        assert shown(ours) == shown(theirs)
        [tea] = ours.post(
            "/conclusions/query",
            json={"query": "tea", "top_k": 1, "filters": {"observer": "carl", "observed": "carl"}},
        ).json()
        sources = ours.get(f"/ext/conclusions/{tea['id']}/messages").json()["total"]
        assert sources == theirs.get(f"/ext/conclusions/{tea['id']}/messages").json()["total"] > 1
        say(ours, "talk", "I go on.", peer="ben")
        settle(ours)
        assert (
            ours.post("/sessions/talk/messages/list?reverse=true", json={}).json()["items"][0]["content"] == "I go on."
        )


def test_import_into_a_memory_that_holds_it_changes_nothing(old: Served, filled: str, tmp_path: Path) -> None:
    export(old, filled, tmp_path / "a.jsonl")
    with inside(old, filled) as http:
        http.put("/peers/ann", json={"metadata": {"newer": True}}).raise_for_status()
    export(old, filled, tmp_path / "b.jsonl")
    told = bring(old, tmp_path / "a.jsonl")
    assert sum(told["carried"].values()) == 0
    assert sum(told["present"].values()) == sum(told["in_file"].values())
    export(old, filled, tmp_path / "c.jsonl")
    assert items(tmp_path / "c.jsonl") == items(tmp_path / "b.jsonl")


def test_ids_that_belong_to_another_workspace_are_refused_with_their_lines(
    old: Served, filled: str, tmp_path: Path
) -> None:
    export(old, filled, tmp_path / "a.jsonl")
    copied = items(tmp_path / "a.jsonl")
    with inside(old, f"{filled}-copy") as http:
        for section in ("peers", "sessions"):
            http.post(f"/ext/import/{section}", json={"items": copied[section]}).raise_for_status()
        told = http.post("/ext/import/messages", json={"items": copied["messages"][:2]}).json()
        assert told["added"] == 0
        assert [one["item"] for one in told["refused"]] == [0, 1]
        assert "elsewhere on this server" in told["refused"][0]["reason"]
        bad = http.post(
            "/ext/import/peers", json={"items": [{"id": "a b"}, {**copied["peers"][0], "id": "fine"}]}
        ).json()
        assert (bad["added"], [one["item"] for one in bad["refused"]]) == (1, [0])


def test_unusable_sequence_numbers_are_refused_item_by_item(old: Served, filled: str, tmp_path: Path) -> None:
    export(old, filled, tmp_path / "a.jsonl")
    copied = items(tmp_path / "a.jsonl")
    message, conclusion = copied["messages"][0], copied["conclusions"][0]
    with inside(old, filled) as http:
        for section, name, item in (("messages", "seq", message), ("conclusions", "times_derived", conclusion)):
            given = [{**item, "id": f"{filled[-8:]}{number}", name: number} for number in (2**63 - 1, 2**40 + 1, 2**40)]
            told = http.post(f"/ext/import/{section}", json={"items": given}).json()
            assert (told["added"], [one["item"] for one in told["refused"]]) == (1, [0, 1])
            assert told["refused"][0]["reason"].startswith(name)
        say(http, message["session_id"], "It goes on.", peer=message["peer_id"])


def test_scope_that_is_named_twice_is_taken_once(old: Served, filled: str, tmp_path: Path) -> None:
    export(old, filled, tmp_path / "a.jsonl")
    scope = next(peer for peer in items(tmp_path / "a.jsonl")["peers"] if peer["kind"] == "scope")
    session = items(tmp_path / "a.jsonl")["sessions"][0]
    with inside(old, filled) as http:
        for section, item in (("peers", {**scope, "id": "twice"}), ("sessions", {**session, "id": "anew"})):
            http.post(f"/ext/import/{section}", json={"items": [item]}).raise_for_status()
        given = {"session_id": "anew", "scopes": ["twice", "twice"]}
        told = http.post("/ext/import/scopes", json={"items": [given]}).raise_for_status().json()
        assert (told["added"], told["refused"]) == (1, [])


@pytest.mark.stress
def test_large_memory_arrives_whole(old: Served, new: Served, workspace: str, tmp_path: Path) -> None:
    with inside(old, workspace) as http:
        fill(http)
        for number in range(scale(5, 400)):
            say(http, f"s{number}", *(f"word {number} {n}" for n in range(100)))
        settle(http)
    export(old, workspace, tmp_path / "a.jsonl")
    bring(new, tmp_path / "a.jsonl")
    export(new, workspace, tmp_path / "b.jsonl")
    assert items(tmp_path / "a.jsonl") == items(tmp_path / "b.jsonl")
