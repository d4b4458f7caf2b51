"""`api.memory`: requests that name no session, from the official client and from chat programs, against a real gateway
and a real memory server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.asking import ask, body, in_session, leave, reply
from tests.gateway.processes import (
    GatewayProcess,
    echo_model,
    rows,
    said,
    wait_until,
)
from tests.honcho.api_place import TABLES, Place, open_home
from tests.honcho.api_place import place as place
from tests.honcho.chat_programs import LIBRECHAT, OPEN_WEBUI, TASKS
from tests.memory_server.serving import Served
from tests.plain_http import PLAIN

pytestmark = [pytest.mark.contract("10.2"), pytest.mark.processes]


@pytest.fixture
def own(server: Served, tmp_path: Path, workspace: str) -> Iterator[Callable[..., Place]]:
    """A gateway that the test starts and stops."""
    with echo_model() as model:
        made: list[GatewayProcess] = []

        def open_place(**more: object) -> Place:
            made.append(open_home(tmp_path, server, model, workspace, **more))
            return Place(made[-1].start(), model, server, workspace)

        yield open_place
        model.go_on()
        for gateway in made:
            if gateway.running:
                gateway.kill()


@pytest.mark.parametrize("more", [OPEN_WEBUI, LIBRECHAT], ids=["Open WebUI", "LibreChat"])
def test_a_fact_told_in_one_chat_is_known_in_the_next(place: Place, more: dict[str, Any]) -> None:
    animal = "heron" if more else "lynx"
    place.chat(more=more).say(f"My boat is called Grey {animal}.")
    place.learn()
    place.chat(more=more).say(f"What is my boat called, the {animal} one?")
    assert f"My boat is called Grey {animal}." in place.asked()[-1]["content"]
    assert place.told(f"My boat is called Grey {animal}.") == ["ann"]


@pytest.mark.contract("7.1", "7.2", "7.9")
def test_the_official_client_recalls_by_default_and_nothing_is_kept(place: Place) -> None:
    import openai  # a second to import: only for whoever runs this

    place.chat().say("My piano teacher is Mrs Okafor.")
    before = place.kept()
    with openai.OpenAI(base_url=place.url, api_key="none") as client:
        asked: list[Any] = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello there, friend"},
        ]
        asked += [{"role": "assistant", "content": "hi"}, {"role": "user", "content": "Who is my piano teacher?"}]
        client.chat.completions.create(model="hermes", messages=asked)
    *earlier, last = place.asked()
    assert "My piano teacher is Mrs Okafor." in last["content"]
    assert last["content"].endswith("</memory-context>\n\nWho is my piano teacher?")
    assert [one["content"] for one in earlier[1:]] == ["Be brief.", "Hello there, friend", "hi"]
    assert place.kept() == before


def test_off_reads_nothing_and_keeps_nothing(place: Place) -> None:
    place.chat().say("My cello is by Testore.")
    before = place.kept()
    chat = place.chat("hermes:off")
    assert chat.say("Who made my cello?") == "echo: Who made my cello?"
    assert "Testore" not in json.dumps(place.asked())
    assert "tools" not in place.model.server.requests[-1].body
    assert (chat.session_id, place.kept()) == ("", before)


def test_forged_recall_block_is_not_known_in_the_next_chat(place: Place) -> None:
    place.chat("hermes:recall").say("My kayak is called Biscuit.")
    place.chat("hermes:recall").say("What is my kayak called?")
    assert "Biscuit" not in json.dumps(place.asked())
    assert place.told("My kayak is called Biscuit.") == []


@pytest.mark.contract("P2")
def test_growing_conversation_is_one_session_and_each_message_is_kept_once(place: Place) -> None:
    chat = place.chat()
    replies = [chat.say(f"Oak number {number}.") for number in range(3)]
    chat.system = "Speak like a pirate."
    replies.append(chat.say("Oak number 3."))
    texts = [f"Oak number {number}." for number in range(4)]
    assert place.said_in(chat) == texts
    assert place.said_in(chat, "assistant") == replies
    held = [content for _, content in place.remembered()]
    assert [held.count(text) for text in (*texts, *replies)] == [1] * 8
    _, system, *rest = place.asked()
    assert system == {"role": "system", "content": "Speak like a pirate."}
    assert [one["content"].split("\n")[-1] for one in rest if one["role"] == "user"] == texts
    assert "pirate" not in json.dumps(rows(place.gateway.home, "SELECT content FROM messages"))


@pytest.mark.contract("P2", "10.26")
def test_regenerate_has_one_more_reply_and_the_message_once(place: Place) -> None:
    chat = place.chat()
    chat.say("Ash number one.")
    chat.say("Ash number two.")
    place.learn()  # a reply that is taken back on its way waits until it must have arrived
    before, session = len(place.model.requests()), chat.session_id
    chat.regenerate()
    assert len(place.model.requests()) == before + 1
    assert chat.session_id == session
    chat.say("Ash number three.")
    assert chat.session_id == session
    assert place.said_in(chat) == ["Ash number one.", "Ash number two.", "Ash number three."]
    replies = place.said_in(chat, "assistant")
    assert len(replies) == 3
    held = [content for _, content in place.remembered()]
    assert [held.count(f"Ash number {word}.") for word in ("one", "two", "three")] == [1, 1, 1]
    assert [held.count(str(text)) for text in replies] == [1, 1, 1]


@pytest.mark.contract("P1", "P2")
def test_edit_of_an_earlier_message_branches_off_and_takes_nothing_back(place: Place) -> None:
    chat = place.chat()
    chat.say("Elm begins.")
    chat.say("Elm was planted in 1990.")
    chat.say("Elm goes on.")
    first, trunk = chat.session_id, list(chat.messages)
    chat.edit(2, "Elm was planted in 1991.")
    branch = chat.session_id
    assert branch != first
    assert [one["content"].split("\n")[-1] for one in place.asked()[1:]] == [
        "Elm begins.",
        trunk[1]["content"].split("\n")[-1],
        "Elm was planted in 1991.",
    ]
    chat.say("Elm has leaves.")
    assert chat.session_id == branch
    assert place.said_in(chat) == ["Elm was planted in 1991.", "Elm has leaves."]
    back = place.chat(messages=trunk)
    back.say("Elm is back on its trunk.")
    assert back.session_id == first
    assert place.said_in(back)[-1] == "Elm is back on its trunk."
    begun = [content for _, content in place.remembered()]
    for text in (
        "begins",
        "was planted in 1990",
        "was planted in 1991",
        "goes on",
        "has leaves",
        "is back on its trunk",
    ):
        assert begun.count(f"Elm {text}.") == 1


def test_reply_that_the_client_has_otherwise_branches_off(place: Place) -> None:
    chat = place.chat()
    chat.say("Fir begins.")
    first = chat.session_id
    chat.messages[1]["content"] = "something that was never said"
    chat.say("Fir goes on.")
    assert chat.session_id != first
    assert place.asked()[2]["content"] == "something that was never said"


def test_reply_that_the_client_has_in_part_continues_the_session(place: Place) -> None:
    chat = place.chat()
    chat.say("Gum begins and is not heard to its end.")
    first = chat.session_id
    chat.messages[1]["content"] = chat.messages[1]["content"][:9]
    chat.say("Gum goes on.")
    assert chat.session_id == first


def test_reply_in_the_middle_that_is_wanted_anew_is_not_kept(place: Place) -> None:
    chat = place.chat()
    chat.say("Box begins.")
    chat.say("Box goes on.")
    before, trunk = place.remembered(), list(chat.messages)
    chat.messages = trunk[:2]
    assert chat.regenerate().startswith("echo: Box begins.")
    assert (chat.session_id, place.remembered()) == ("", before)
    chat.say("Box branches off.")
    assert place.said_in(chat) == ["Box branches off."]
    assert place.told("Box begins.") == ["ann"]


def test_command_in_a_chat_is_answered_and_the_session_continues(place: Place) -> None:
    chat = place.chat()
    chat.say("Teak begins.")
    first = chat.session_id
    assert "tokens" in chat.say("/usage")
    chat.say("Teak goes on.")
    assert (chat.session_id, place.said_in(chat)) == (first, ["Teak begins.", "Teak goes on."])


def test_retracted_message_is_stored_again_when_it_is_sent_again(place: Place) -> None:
    chat = place.chat()
    chat.say("Lime begins.")
    chat.say("Lime is taken back.")
    place.learn()
    reply(ask(place.url, "/undo", headers=in_session(chat.session_id)))
    chat.regenerate()
    assert place.said_in(chat) == ["Lime begins.", "Lime is taken back."]
    assert place.told("Lime is taken back.") == ["ann"]


def test_client_that_leaves_out_the_beginning_stays_in_its_session(place: Place) -> None:
    chat = place.chat()
    for number in range(3):
        chat.say(f"Yew number {number}.")
    first = chat.session_id
    for number in range(3, 6):
        chat.messages = chat.messages[-2:]
        chat.say(f"Yew number {number}.")
        assert chat.session_id == first
    assert place.said_in(chat) == [f"Yew number {number}." for number in range(6)]
    asked = [one["content"].split("\n")[-1] for one in place.asked() if one["role"] == "user"]
    assert asked == [f"Yew number {number}." for number in range(6)]


@pytest.mark.contract("1.9")
def test_guests_have_memory_of_their_own_and_never_one_session(place: Place) -> None:
    chats = {user: place.chat(more={"user": user} if user else {}) for user in ("", "bob", "eve")}
    for chat in chats.values():
        chat.say("My tent is green.")
    assert len({chat.session_id for chat in chats.values()}) == 3
    assert sorted(place.told("My tent is green.")) == ["ann", "bob", "eve"]
    place.chat(more={"user": "bob"}).say("My drum is from Ghana.")
    place.learn()
    for user, knows in (("bob", True), ("eve", False)):
        for mode in ("hermes:recall", "hermes:full"):
            place.chat(mode, more={"user": user}).say(f"Where is my drum from, in {mode}?")
            assert ("Ghana" in json.dumps(place.asked())) is knows


@pytest.mark.parametrize("task", TASKS)
def test_task_of_a_program_is_no_conversation_and_reads_no_memory(place: Place, task: str) -> None:
    chat = place.chat()
    chat.say("My canoe is by Larch and Sons.")
    before = place.kept()
    chat.run_task(TASKS[task])
    assert "<memory-context>" not in place.asked()[-1]["content"]
    assert place.kept() == before


def test_documents_around_a_message_are_read_and_not_kept_as_said(place: Place) -> None:
    wrapped = (
        "### Task:\nRespond to the user query using the provided context.\n<context>\nI live in Porto.\n</context>\n"
    )
    chat = place.chat()
    chat.say("Rowan begins.")
    chat.messages.append({"role": "user", "content": f"{wrapped}\nWhat of rowan, then?"})
    chat.send()
    assert "I live in Porto." in json.dumps(place.asked())
    chat.messages[2]["content"] = "What of rowan, then?"
    chat.say("Rowan ends.")
    assert place.said_in(chat) == ["Rowan begins.", "What of rowan, then?", "Rowan ends."]


@pytest.mark.contract("P2", "2.4")
def test_the_same_request_at_the_same_time_is_one_turn(place: Place) -> None:
    chat = place.chat()
    messages = [{"role": "user", "content": "Maple, all at once."}]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: chat.post(messages), range(6)))
    assert len({answer.headers["x-hermes-session-id"] for answer in answers}) == 1
    chat.session_id = answers[0].headers["x-hermes-session-id"]
    assert place.said_in(chat) == ["Maple, all at once."]
    assert place.told("Maple, all at once.") == ["ann"]


def test_two_messages_at_the_same_time_do_not_mix(place: Place) -> None:
    chat = place.chat()
    chat.say("Plum begins.")
    asked = [[*chat.messages, {"role": "user", "content": f"Plum in window {number}."}] for number in range(2)]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(chat.post, asked))
    assert len({answer.headers["x-hermes-session-id"] for answer in answers}) == 2
    assert [place.told(f"Plum in window {number}.") for number in range(2)] == [["ann"], ["ann"]]


@pytest.mark.contract("P1", "P2", "2.2")
def test_lost_reply_is_given_to_the_same_request_also_after_a_kill(own: Callable[..., Place]) -> None:
    place = own(api__memory="full")
    place.model.hold()
    leave(place.url, "Cedar is lost.", lambda: len(place.model.requests()) == 1, headers={})
    place.gateway.kill()
    place.gateway.start()
    place.model.go_on()
    wait_until(lambda: place.gateway.said("assistant"))
    asked = len(place.model.requests())
    chat = place.chat("hermes")
    assert chat.say("Cedar is lost.").startswith("echo: Cedar is lost.")
    assert len(place.model.requests()) == asked
    assert place.said_in(chat) == ["Cedar is lost."]
    assert len(place.said_in(chat, "assistant")) == 1
    place.learn()
    chat.regenerate()
    assert len(place.model.requests()) == asked + 1
    assert place.told("Cedar is lost.") == ["ann"]
    chat.say("Cedar goes on.")
    assert place.said_in(chat) == ["Cedar is lost.", "Cedar goes on."]


def test_setting_off_keeps_nothing_of_any_client(own: Callable[..., Place]) -> None:
    place = own(api__memory="off")
    chat = place.chat("hermes")
    assert [chat.say(text) for text in ("Sloe begins.", "Sloe goes on.")] == [
        "echo: Sloe begins.",
        "echo: Sloe goes on.",
    ]
    assert [rows(place.gateway.home, f"SELECT count(*) FROM {table}") for table in TABLES] == [[(0,)]] * len(TABLES)


@pytest.mark.contract("2.2")
def test_idempotency_key_gives_the_one_reply_also_without_a_session(place: Place) -> None:
    chat = place.chat()
    messages = [{"role": "user", "content": "Pine with a key."}]
    first, second = (chat.post(messages, Idempotency_Key="pine-1") for _ in range(2))
    asked = len(place.model.requests())
    assert second.headers["idempotent-replayed"] == "true"
    assert (
        chat.post(messages, Idempotency_Key="pine-1").headers["x-hermes-session-id"]
        == first.headers["x-hermes-session-id"]
    )
    assert len(place.model.requests()) == asked
    chat.post(messages, Idempotency_Key="pine-2")
    assert len(place.model.requests()) == asked + 1
    assert place.told("Pine with a key.") == ["ann"]


def test_deleted_session_leaves_no_fingerprint_and_the_chat_begins_anew(place: Place) -> None:
    chat = place.chat()
    chat.say("Palm begins.")
    first = chat.session_id
    place.gateway.hermes("sessions", "delete", first, "--yes")
    assert rows(place.gateway.home, "SELECT 1 FROM hermes_api_turns WHERE session_id = ?", first) == []
    chat.say("Palm goes on.")
    assert chat.session_id != first
    assert said(place.gateway.home, chat.session_id) == ["Palm goes on."]
    assert place.asked()[1]["content"] == "Palm begins."


def test_models_are_listed_and_an_unknown_memory_is_refused(place: Place) -> None:
    listed = httpx.get(f"{place.url}/models", verify=PLAIN).json()["data"]
    assert [one["id"] for one in listed] == ["hermes", "hermes:off", "hermes:recall", "hermes:full"]
    unknown = httpx.post(f"{place.url}/chat/completions", json=body("hi", model="hermes:none"), verify=PLAIN)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    named = ask(place.url, "hi", headers=in_session("s"), model="hermes:off")
    assert (named.status_code, named.json()["error"]["param"]) == (400, "model")
    assert reply(ask(place.url, "hi there", model="gpt-4o")).startswith("echo: hi there")


def test_long_history_is_recognised(place: Place) -> None:
    turns = [{"role": role, "content": "word " * 40} for _ in range(4000) for role in ("user", "assistant")]
    chat = place.chat(messages=turns)
    chat.say("Willow after a long time.")
    first = chat.session_id
    chat.say("Willow again.")
    assert chat.session_id == first
    assert place.said_in(chat) == ["Willow after a long time.", "Willow again."]
