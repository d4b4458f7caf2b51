"""`hermes memory forget`: finds memory by words, shows it, and deletes it everywhere after a yes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.db.lanes import release_lane
from hermes.db.leases import new_owner
from hermes.db.queue import Retry, claim, enqueue, settle
from tests.cli.filling import write_into
from tests.conftest import Ran
from tests.honcho.between import Asked, Instead
from tests.honcho.recalling import ANN, BOT, HERE, Recalling

Hermes = Callable[..., Ran]
SECRET = "My safe opens with Zanzibar and a key."


@pytest.fixture
def home(commanded: Path) -> Path:
    return commanded


def told(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("elsewhere", (ANN, SECRET), (ANN, "I like figs."), (BOT, "A safe and Zanzibar, I see."))
    recalling.conclude(BOT, ANN, "Ann's word for the safe is zanzibar.")
    recalling.set_card(BOT, ["Safe: Zanzibar", "Likes figs"], ANN)


def everything(recalling: Recalling) -> str:
    """Return all that the server would show anyone."""
    with recalling.at_server() as http:
        asked = [
            http.post("/conclusions/list?size=100", json={}),
            http.post("/search", json={"query": "Zanzibar safe figs", "limit": 100}),
            http.get(f"/peers/{BOT}/card?target={ANN}"),
            http.post(f"/peers/{BOT}/representation", json={"target": ANN}),
            http.get(f"/sessions/elsewhere/context?peer_target={ANN}&peer_perspective={BOT}"),
        ]
    assert all(answer.is_success for answer in asked)
    return "\n".join(answer.text for answer in asked)


@pytest.mark.contract("7.12")
def test_after_a_yes_nothing_in_memory_holds_the_words_and_the_rest_stays(recalling: Recalling, hermes: Hermes) -> None:
    told(recalling)
    done = hermes("memory", "forget", "zanzibar", "SAFE", "--yes")
    assert done.code == 0, done.err
    left = everything(recalling)
    assert "anzibar" not in left
    assert "figs" in left
    assert "Memory holds nothing" in hermes("memory", "forget", "Zanzibar").err


@pytest.mark.contract("7.12")
def test_without_a_terminal_it_is_shown_and_nothing_is_deleted(recalling: Recalling, hermes: Hermes) -> None:
    told(recalling)
    shown = hermes("memory", "forget", "Zanzibar")
    assert shown.code == 1
    for kind in ("message", "conclusion", "card"):
        assert kind in shown.out
    assert "Nothing was deleted" in shown.err
    listed = json.loads(hermes("memory", "forget", "Zanzibar", "--json").out)
    assert listed["deleted"] is False
    assert {one["kind"] for one in listed["at_provider"]["items"]} == {"message", "conclusion", "card"}
    assert "Zanzibar" in everything(recalling)


def test_fact_of_two_views_is_one_row_and_unmatched_words_are_repeated(recalling: Recalling, hermes: Hermes) -> None:
    recalling.configure()
    for observer in (ANN, BOT):
        recalling.conclude(observer, ANN, "Ann likes figs.")
    shown = hermes("memory", "forget", "figs").out
    assert shown.count("Ann likes figs.") == 1
    assert "ann; ann, as bot knows" in shown or "ann, as bot knows; ann" in shown
    last = hermes("memory", "forget", "Zanzibar", "safe").err.splitlines()[-1]
    assert last == "Memory holds nothing that contains all of these words: Zanzibar safe"


def test_waiting_for_a_server_is_announced(
    recalling: Recalling, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(recalling)
    lines, is_said = list[str](), threading.Event()

    def note(text: str) -> None:
        lines.append(text)
        is_said.set()

    monkeypatch.setattr("hermes.cli.output.QUIET_SECONDS", 0.01)
    monkeypatch.setattr("hermes.cli.output.note", note)

    def slow(_: Asked) -> None:
        assert is_said.wait(20)

    recalling.between.rule = slow
    assert hermes("memory", "forget", "Zanzibar").code == 1
    assert lines[0] == "Looking through what honcho holds; its server may have to be started first …"


@pytest.mark.parametrize(("words", "finds"), [("zanzi", False), ("figs", True), ("figs Zanzibar", False), ("", None)])
def test_all_words_must_stand_there_whole(recalling: Recalling, hermes: Hermes, words: str, finds: bool | None) -> None:
    told(recalling)
    done = hermes("memory", "forget", words, "--json")
    if finds is None:
        assert done.code == 2
    else:
        assert bool(json.loads(done.out)["at_provider"]["items"]) is finds


@pytest.mark.contract("7.12")
async def test_a_prepared_recall_an_entry_that_waits_and_the_record_of_a_turn_go_too(
    recalling: Recalling, hermes: Hermes
) -> None:
    told(recalling)
    recalling.configure(contextCadence=100, dialecticCadence=100)
    async with recalling.host() as talk:
        assert "Zanzibar" in await talk.turn("How does my safe open?")
        await talk.say("Remember that the safe opens with Zanzibar.")
        assert "Zanzibar" in (await asyncio.to_thread(hermes, "memory", "explain")).out
        assert (await asyncio.to_thread(hermes, "memory", "forget", "zanzibar", "--yes")).code == 0
        outbox = json.loads((await asyncio.to_thread(hermes, "memory", "outbox", "list", "--json")).out)
        assert "Zanzibar" not in (await asyncio.to_thread(hermes, "memory", "explain")).out
        assert "Zanzibar" not in str(outbox)
        assert len(outbox[0]["entries"]) == 1  # the other question
        again = await talk.turn("How does my safe open?")
        assert "anzibar" not in again
        assert "figs" in again
        assert "anzibar" not in await talk.use("honcho_search", query="Zanzibar")
        found = await talk.provider.store.read(lambda tx: talk.provider.store.incognito.ids(tx, HERE.session_id))
        assert len(found) == 1  # what was said stays in its session, and out of memory


@pytest.mark.contract("7.12")
def test_a_server_that_cannot_delete_messages_is_named_with_what_stays(recalling: Recalling, hermes: Hermes) -> None:
    told(recalling)
    recalling.between.rule = lambda asked: Instead({"status": "ok"}) if asked.what == "health" else None
    done = hermes("memory", "forget", "Zanzibar", "--yes", "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["deleted"] is True
    assert found["stays"] == found["at_provider"]["stays"]
    assert "2 messages stay" in found["at_provider"]["stays"][0]
    assert "cannot delete messages" in found["at_provider"]["stays"][0]
    with recalling.at_server() as http:
        kept = [one["content"] for one in http.post("/conclusions/list?size=100", json={}).json()["items"]]
        assert not any("anzibar" in text for text in kept)
        assert "Zanzibar" in http.post("/search", json={"query": "Zanzibar"}).text


@pytest.mark.contract("7.12")
def test_remaining_items_are_reported_and_not_called_forgotten(recalling: Recalling, hermes: Hermes) -> None:
    told(recalling)
    recalling.between.rule = lambda asked: Instead({"status": "ok"}) if asked.what == "health" else None
    for last in ("Deleted what could be deleted.", "Nothing else was found"):
        done = hermes("memory", "forget", "Zanzibar", "--yes")
        assert done.code == 1
        assert "2 messages stay" in done.out
        assert last in done.err


@pytest.mark.contract("7.12")
def test_items_still_found_after_the_last_round_are_reported(
    recalling: Recalling, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(recalling)
    monkeypatch.setattr("hermes.owner.forgetting.MAX_ROUNDS", 0)
    done = hermes("memory", "forget", "Zanzibar", "--yes")
    assert done.code == 1
    assert "or more things are still at honcho; the same command goes on" in done.out
    assert "Forgotten" not in done.err


@pytest.mark.contract("7.12")
def test_what_arrives_while_its_entry_is_dropped_is_deleted_too(
    recalling: Recalling, hermes: Hermes, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recalling.configure()
    recalling.tell("elsewhere", (ANN, "I like figs."))
    now, name = SystemClock().now(), "memory:honcho"
    payload = {"text": SECRET, "kind": "note", "data": None, "key": "k", "address": None}
    write_into(home, lambda _, tx: enqueue(tx, name, "lane", "note:k", payload, now=now))
    claimed = write_into(home, lambda _, tx: claim(tx, name, new_owner(), ttl=60.0, now=now))
    assert claimed is not None

    def arrives(_: float) -> None:
        recalling.tell("elsewhere", (ANN, SECRET))
        write_into(home, lambda _, tx: release_lane(tx, name, "lane", claimed.lease))

    monkeypatch.setattr("hermes.owner.forgetting.sleep", arrives)
    done = hermes("memory", "forget", "Zanzibar", "--yes")
    assert done.code == 0, done.out
    assert "being delivered right now" in done.err
    left = everything(recalling)
    assert "figs" in left
    assert "anzibar" not in left


@pytest.mark.contract("7.12")
@pytest.mark.parametrize(("ago", "code"), [(10.0, 1), (600.0, 0)])
def test_what_was_sent_a_moment_ago_without_an_answer_is_not_called_forgotten(
    recalling: Recalling, hermes: Hermes, home: Path, ago: float, code: int
) -> None:
    recalling.configure()
    tried, name = SystemClock().now() - ago, "memory:honcho"
    payload = {"text": SECRET, "kind": "note", "data": None, "key": "k", "address": None}
    write_into(home, lambda _, tx: enqueue(tx, name, "lane", "note:k", payload, now=tried))
    claimed = write_into(home, lambda _, tx: claim(tx, name, new_owner(), ttl=60.0, now=tried))
    assert claimed is not None
    write_into(home, lambda _, tx: settle(tx, claimed, [Retry(tried + 3600.0, "no answer")], now=tried))
    done = hermes("memory", "forget", "Zanzibar", "--yes")
    assert (done.code, "may still arrive" in done.out, "Forgotten" in done.err) == (code, code == 1, code == 0)


def test_unreachable_server_is_an_error_and_nothing_is_deleted(recalling: Recalling, hermes: Hermes) -> None:
    told(recalling)
    recalling.between.rule = lambda _: Instead({"detail": "no"}, status=500)
    done = hermes("memory", "forget", "Zanzibar", "--yes")
    assert done.code != 0
    assert done.err == "hermes: the server answered 500: no\n"
    recalling.between.rule = lambda _: None
    assert "Zanzibar" in everything(recalling)
