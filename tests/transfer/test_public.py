"""Transfer with a server that offers only Honcho's public API: everything possible is transferred, the rest is
reported."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from hermes.errors import TransferError
from tests.memory_server.serving import Served, inside
from tests.memory_server.talking import say, settle
from tests.transfer.carrying import Cut, bring, export, items, tear, write_file
from tests.transfer.filling import MESSAGES, change, fill, listed, shown

pytestmark = [pytest.mark.contract("9.12"), pytest.mark.processes]
CUTS = 10


def test_interrupted_transfer_to_a_public_server_is_complete(
    old: Served, other: Served, filled: str, tmp_path: Path
) -> None:
    with inside(old, filled) as http:
        change(http)
    chance = random.Random(11)
    path = tmp_path / "a.jsonl"
    report = export(old, filled, path)
    for _ in range(CUTS):
        with pytest.raises(Cut):
            bring(other, path, public=True, requests=chance.randrange(2, 9), after_reply=chance.random() < 0.7)
    told = bring(other, path, public=True)
    with inside(old, filled) as theirs, inside(other, filled) as ours:
        settle(ours)
        assert shown(ours) == shown(theirs)
    counts = report["counts"]
    assert told["target"] == "honcho"
    assert told["refused"] == 0
    ended = sum(stay["left_seq"] is not None for stay in items(path)["memberships"])
    carried = {name: counts[name] for name in counts if name != "summaries"}
    assert told["carried"] == {**carried, "memberships": counts["memberships"] - ended}
    assert told["not_carried"] == {
        "workspace, peers, sessions and scopes: when they were made": 1 + counts["peers"] + counts["sessions"],
        "members: when they joined, and stays that ended": counts["memberships"],
        "messages: their ids": counts["messages"],
        "conclusions: ids, dates, how often they were derived, and what they came from": counts["conclusions"],
        "conclusions: what they said before they were edited": 1,
        "cards: who wrote them, and when": counts["cards"],
        "summaries: the server makes its own": sum(len(one["summaries"]) for one in items(path)["summaries"]),
    }


def test_interrupted_transfer_from_a_public_server_is_complete(
    other: Served, new: Served, workspace: str, tmp_path: Path
) -> None:
    with inside(other, workspace) as http:
        fill(http)
    chance = random.Random(13)
    path = tmp_path / "a.jsonl"
    for _ in range(CUTS):
        with pytest.raises(Cut):
            export(other, workspace, path, public=True, requests=chance.randrange(6, 12))
        tear(tmp_path / "a.jsonl.part", chance)
    report = export(other, workspace, path, public=True)
    assert report["source"] == "honcho"
    assert report["lacking"] == {
        "members: when they joined, and stays that ended": report["counts"]["memberships"],
        "conclusions: which messages they came from, and what they said before": report["counts"]["conclusions"],
        "cards: who wrote them, and when; there may be more, between peers that nothing else connects": 2,
    }
    told = bring(new, path)
    assert (told["refused"], told["not_in_file"]) == (0, report["lacking"])
    with inside(other, workspace) as theirs, inside(new, workspace) as ours:
        assert shown(ours) == shown(theirs)
        query = "/sessions/talk/messages/list?size=100"
        assert ours.post(query, json={}).json() == theirs.post(query, json={}).json(), "ids too"
        assert ours.post("/sessions/talk/messages/list", json={}).json()["total"] == MESSAGES
        assert ours.get("/sessions/talk/summaries").json() == theirs.get("/sessions/talk/summaries").json()


def test_concurrent_writer_stops_an_import_whose_outcome_is_unknown(
    old: Served, other: Served, filled: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    export(old, filled, path)
    requests = 1
    while (tmp_path / "a.jsonl.progress").exists() is False or '"before": ' not in _progress(tmp_path):
        with pytest.raises(Cut):
            bring(other, path, public=True, requests=requests, after_reply=True)
        requests += 1
    with inside(other, filled) as http:
        for session in listed(http, "POST", "/sessions/list"):
            say(http, session["id"], "me too", peer="eve")
    with pytest.raises(TransferError, match=r"lines \d+ to \d+ were sent and it is not known whether they arrived"):
        bring(other, path, public=True)


def _progress(folder: Path) -> str:
    return (folder / "a.jsonl.progress").read_text(encoding="utf-8")


def test_item_that_a_public_server_refuses_is_reported_and_the_others_arrive(
    other: Served, workspace: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    made = {"metadata": {}, "configuration": {}, "created_at": "2026-01-01T00:00:00Z"}
    known: dict[str, Any] = {
        "metadata": {},
        "level": "explicit",
        "session_id": None,
        "source_ids": None,
        "times_derived": 1,
    }
    conclusions = [
        {"id": f"c{n}", "content": f"fact {n}", "observer_id": who, "observed_id": "ann", **known}
        | {"created_at": "2026-01-01T00:00:00Z", "message_ids": [], "versions": []}
        for n, who in enumerate(["ann", "nobody", "ann"])
    ]
    message: dict[str, Any] = {
        "session_id": "s",
        "peer_id": "ann",
        "metadata": {},
        "created_at": "2026-01-01T00:00:00Z",
        "file": None,
    }
    texts = ["one", "x" * 25_001, "three"]
    messages = [{"id": f"m{n}", "seq": n, "content": text, **message} for n, text in enumerate(texts, start=1)]
    given: list[tuple[str, dict[str, Any]]] = [
        ("workspace", {"id": workspace, **made}),
        ("peers", {"id": "ann", "kind": "peer", **made}),
    ]
    given += [("sessions", {"id": "s", **made}), *(("messages", one) for one in messages)]
    write_file(path, workspace, [*given, *(("conclusions", one) for one in conclusions)])
    report = bring(other, path, public=True)
    assert [(one["line"], one["reason"][:3]) for one in report["refusals"]] == [(6, "422"), (9, "404")]
    assert (report["refused"], report["carried"]["messages"], report["carried"]["conclusions"]) == (2, 2, 2)
    with inside(other, workspace) as http:
        assert [m["content"] for m in listed(http, "POST", "/sessions/s/messages/list")] == ["one", "three"]
        assert [c["content"] for c in listed(http, "POST", "/conclusions/list")] == ["fact 2", "fact 0"]


def test_missing_workspace_is_not_created(old: Served, other: Served, tmp_path: Path) -> None:
    for served, public in ((old, False), (other, True)):
        with pytest.raises(TransferError, match="nowhere"):
            export(served, "nowhere", tmp_path / "x.jsonl", public=public)
        with served.client() as http:
            told = http.post("/v3/workspaces/list", json={"filters": {"id": "nowhere"}}).json()
            assert told["items"] == []
    assert not (tmp_path / "x.jsonl.part").exists()
