"""`hermes memory forget` reads everything on our own server, and names what it cannot read on others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
from tests.honcho.between import Asked, Instead
from tests.honcho.recalling import ANN, BOB, BOT, Recalling

Hermes = Callable[..., Ran]


@pytest.fixture(autouse=True)
def home(recalling: Recalling, commanded: Path) -> Path:
    recalling.configure()
    return commanded


def post(recalling: Recalling, path: str, body: Any) -> Any:
    with recalling.at_server() as http:
        answer = http.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()


def say(recalling: Recalling, peer: str, texts: Sequence[str], session: str = "long") -> None:
    """Store many messages of someone, without conclusions."""
    off = {"id": session, "configuration": {"reasoning": {"enabled": False}}}
    post(recalling, "/sessions", off)
    for start in range(0, len(texts), 100):
        said = [{"peer_id": peer, "content": text} for text in texts[start : start + 100]]
        post(recalling, f"/sessions/{session}/messages", {"messages": said})


def found(hermes: Hermes, *words: str) -> Any:
    done = hermes("memory", "forget", *words, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)["at_provider"]


def not_ours(asked: Asked) -> Instead | None:
    return Instead({"status": "ok"}) if asked.what == "health" else None


@pytest.mark.contract("7.12")
@pytest.mark.parametrize(
    ("secret", "words"),
    [
        (
            "Some of what goes on, at length: after her fall Ann was in the hospital, do not speak of it.",
            "her hospital",
        ),
        ("My safe opens with Ｚａｎｚｉｂａｒ and a key.", "Zanzibar"),
    ],
)
def test_a_message_that_a_search_would_rank_low_or_miss_is_found_and_deleted(
    recalling: Recalling, hermes: Hermes, secret: str, words: str
) -> None:
    say(recalling, ANN, [secret])
    say(recalling, BOB, [f"I work at the hospital on shift {number}." for number in range(150)])
    done = hermes("memory", "forget", *words.split(), "--yes")
    assert (done.code, done.out) == (0, ""), done.err
    assert "Forgotten." in done.err
    listed = post(recalling, "/sessions/long/messages/list?size=100&reverse=false", {})
    assert secret not in [one["content"] for one in listed["items"]]
    assert listed["total"] == 150


@pytest.mark.contract("7.12")
def test_a_card_between_any_two_peers_is_looked_at_however_many_there_are(recalling: Recalling, hermes: Hermes) -> None:
    for number in range(110):
        post(recalling, "/peers", {"id": f"peer{number}"})
    for observer, observed in (("peer0", "peer109"), ("peer109", "peer0"), ("peer109", None)):
        recalling.set_card(observer, ["Safe: Zanzibar", "Likes figs"], observed)
    held = found(hermes, "Zanzibar")["items"]
    abouts = {"peer109, as peer0 knows", "peer0, as peer109 knows", "peer109"}
    assert {one["about"] for one in held} == abouts
    assert hermes("memory", "forget", "Zanzibar", "--yes").code == 0
    assert found(hermes, "Zanzibar")["items"] == []
    assert len(found(hermes, "figs")["items"]) == 3


@pytest.mark.contract("7.12")
def test_a_conclusion_whose_earlier_wording_our_server_keeps_is_found_by_it(
    recalling: Recalling, hermes: Hermes
) -> None:
    one = recalling.conclude(BOT, ANN, "The word for the safe is Zanzibar.")
    with recalling.at_server() as http:
        assert http.put(f"/ext/conclusions/{one}", json={"content": "The safe has another word."}).is_success
    assert [held["text"] for held in found(hermes, "Zanzibar")["items"]] == ["The word for the safe is Zanzibar."]


@pytest.mark.contract("7.12")
def test_foreign_server_search_warns_that_only_the_best_hits_were_read(recalling: Recalling, hermes: Hermes) -> None:
    say(recalling, ANN, ["I like figs."])
    recalling.conclude(BOT, ANN, "Ann's word is Zanzibar.")
    recalling.between.rule = not_ours
    done = hermes("memory", "forget", "Zanzibar", "--yes")
    assert done.code == 1
    assert "only the 100 best hits were looked at" in done.out
    assert "Forgotten" not in done.err
    assert "Memory holds nothing" not in hermes("memory", "forget", "Zanzibar").err


@pytest.mark.contract("7.12")
@pytest.mark.parametrize(
    ("bound", "line"),
    [
        ("MAX_SEARCH_PAGES", "only the newest 100 conclusions were looked at"),
        ("MAX_CARDS", "only 1 cards were looked at"),
    ],
)
def test_list_of_another_server_beyond_the_limit_is_reported(
    recalling: Recalling, hermes: Hermes, monkeypatch: pytest.MonkeyPatch, bound: str, line: str
) -> None:
    for peer in (ANN, BOT):
        post(recalling, "/peers", {"id": peer})
    pair = {"observer_id": BOT, "observed_id": ANN}
    made = [{"content": f"Ann likes number {number}.", **pair} for number in range(101)]
    for part in (made[:51], made[51:]):
        post(recalling, "/conclusions", {"conclusions": part})
    recalling.between.rule = not_ours
    assert line not in str(found(hermes, "Zanzibar")["stays"])
    monkeypatch.setattr(f"hermes.honcho.remembered.{bound}", 1)
    assert line in str(found(hermes, "Zanzibar")["stays"])


@pytest.mark.contract("7.12")
def test_export_beyond_the_limit_is_reported(
    recalling: Recalling, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(recalling, ANN, [f"I like number {number}." for number in range(101)])
    assert found(hermes, "Zanzibar")["stays"] == []
    monkeypatch.setattr("hermes.honcho.remembered.MAX_PARTS", 1)
    assert found(hermes, "Zanzibar")["stays"] == ["not all messages were looked at: they have more than 1 parts"]


@pytest.mark.contract("7.12")
def test_what_one_look_does_not_find_the_next_ones_do(
    recalling: Recalling, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(recalling, ANN, [f"Zanzibar number {number}." for number in range(60)])
    monkeypatch.setattr("hermes.honcho.remembered.MAX_ITEMS", 12)
    assert hermes("memory", "forget", "Zanzibar", "--yes").code == 0
    assert found(hermes, "Zanzibar")["items"] == []


@pytest.mark.parametrize("status", [401, 403])
def test_refused_key_is_one_line_with_advice(recalling: Recalling, hermes: Hermes, status: int) -> None:
    recalling.between.rule = lambda asked: (
        None if asked.what == "health" else Instead({"detail": "Invalid JWT"}, status=status)
    )
    done = hermes("memory", "forget", "Zanzibar")
    assert done.code == 1
    assert done.err == f"hermes: the server answered {status}: Invalid JWT. Check `apiKey`\n"


@pytest.mark.contract("7.12")
def test_a_conclusion_is_found_by_what_it_was_drawn_from(recalling: Recalling, hermes: Hermes) -> None:
    for peer in (ANN, BOT):
        post(recalling, "/peers", {"id": peer})
    drawn = {
        **{"id": "a" * 21, "observer_id": BOT, "observed_id": ANN, "level": "deductive"},
        **{"content": "Ann has a safe.", "metadata": {"premises": ["It opens with Zanzibar."]}},
        "created_at": "2025-01-01T00:00:00Z",
    }
    post(recalling, "/ext/import/conclusions", {"items": [drawn]})
    shown = {"target": ANN}
    assert "Zanzibar" in post(recalling, f"/peers/{BOT}/representation", shown)["representation"]
    assert hermes("memory", "forget", "Zanzibar", "--yes").code == 0
    assert "Zanzibar" not in post(recalling, f"/peers/{BOT}/representation", shown)["representation"]
