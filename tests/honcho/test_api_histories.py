"""Conversations that clients send whole: replies around tool calls, beginnings that are truncated or shared by two
chats, message parts and tool messages, and very long histories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from random import Random

import httpx
import pytest

from tests.gateway.echo_model import EchoModel
from tests.gateway.processes import LoopbackModel
from tests.honcho.api_place import Place, open_home
from tests.llm.beside import beside
from tests.llm.loopback import Answer, Received, says
from tests.memory_server.serving import Served
from tests.plain_http import PLAIN
from tests.scale import scale

pytestmark = [pytest.mark.contract("10.2"), pytest.mark.processes]
ASKS = "Please search."
BEFORE, AFTER = "Let me look.", "It is in the attic."


class SearchingModel(EchoModel):
    """A model that searches with a tool between two sentences if asked to, and else echoes."""

    def _choose(self, received: Received) -> Answer:
        last = received.body["messages"][-1] if received.method == "POST" else {"role": ""}
        if last["role"] == "tool":
            return says(AFTER)
        if last["role"] == "user" and last["content"].endswith(ASKS):
            return says(BEFORE, calls=[("session_search", '{"query": "attic"}')])
        return super()._choose(received)


@pytest.fixture(scope="module")
def place(processes: None, server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    workspace, folder = "api-histories", tmp_path_factory.mktemp("api")
    with beside(SearchingModel(summary=0, delay=0, pause=0)) as answering:
        model = LoopbackModel(answering)
        with open_home(folder, server, model, workspace, model__tools="on") as gateway:
            yield Place(gateway, model, server, workspace)


@pytest.mark.contract("P2")
def test_reply_with_a_tool_in_it_does_not_end_the_session(place: Place) -> None:
    chat = place.chat()
    assert chat.say(f"Where is the fern? {ASKS}") == f"{BEFORE}\n\n{AFTER}"
    first = chat.session_id
    chat.say("The fern goes on.")
    assert chat.session_id == first
    chat.say(f"And the other fern? {ASKS}")
    chat.messages = chat.messages[-2:]
    chat.say("The fern ends.")
    assert chat.session_id == first
    assert place.said_in(chat) == [
        f"Where is the fern? {ASKS}",
        "The fern goes on.",
        f"And the other fern? {ASKS}",
        "The fern ends.",
    ]


def test_other_chat_with_the_same_last_words_does_not_get_into_the_session(place: Place) -> None:
    ours = place.chat()
    ours.say("Tell me of moss.")
    thanks = ours.say("Thank you")
    other = place.chat()
    for role, text in (("user", "What is lichen?"), ("assistant", "An answer"), ("user", "Thank you")):
        other.messages.append({"role": role, "content": text})
    other.messages.append({"role": "assistant", "content": thanks})
    other.say("The lichen is mine.")
    assert other.session_id != ours.session_id
    assert place.said_in(ours) == ["Tell me of moss.", "Thank you"]
    assert place.said_in(other) == ["The lichen is mine."]
    assert [one["content"] for one in place.asked()[1:5]] == ["What is lichen?", "An answer", "Thank you", thanks]


@pytest.mark.contract("P2")
def test_two_chats_with_the_same_first_words_part_where_they_differ(place: Place) -> None:
    chats = [place.chat() for _ in range(2)]
    for chat in chats:
        chat.say("Good morning, heather.")
        place.learn()  # else the first reply is taken back on its way, which waits until it must have arrived
    for number, chat in enumerate(chats):
        chat.say(f"Heather {number} is in bloom.")
    assert chats[0].session_id != chats[1].session_id
    assert "Heather 0" not in json.dumps([one for one in place.asked() if one["role"] == "assistant"])
    for number, chat in enumerate(chats):
        chat.say(f"Heather {number} is cut.")
        own = [f"Heather {number} is in bloom.", f"Heather {number} is cut."]
        assert place.said_in(chat)[-2:] == own
        assert not any(f"Heather {1 - number}" in str(text) for text in place.said_in(chat))
    held = [content for _, content in place.remembered() if not content.startswith("echo")]
    assert [held.count(text) for text in ("Good morning, heather.", "Heather 0 is cut.", "Heather 1 is cut.")] == [
        1
    ] * 3


def test_parts_and_messages_of_tools_are_the_same_conversation(place: Place) -> None:
    chat = place.chat()
    chat.post([{"role": "user", "content": [{"type": "text", "text": "Ivy begins."}]}])  # type: ignore[dict-item]
    place.learn()
    chat.say("Ivy begins.")
    chat.messages[1]["content"] = [{"type": "text", "text": chat.messages[1]["content"]}]  # type: ignore[assignment]
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    chat.messages.append({"role": "assistant", "content": None, "tool_calls": [call]})  # type: ignore[dict-item]
    chat.messages.append({"role": "tool", "tool_call_id": "c", "content": "42"})
    chat.say("Ivy goes on.")
    assert place.said_in(chat) == ["Ivy begins.", "Ivy goes on."]
    assert place.told("Ivy begins.") == ["ann"]


@pytest.mark.stress
@pytest.mark.contract("P1", "P2")
def test_whatever_clients_do_each_message_is_kept_once_and_the_model_sees_their_chat(place: Place) -> None:
    chance, chats, said = Random(7), [place.chat()], list[str]()

    def new() -> str:
        said.append(f"Palm number {len(said)}.")
        return said[-1]

    for _ in range(scale(40, 400)):
        chat = chance.choice(chats)
        turns = len(chat.messages) // 2
        match chance.choice(("say", "say", "say", "regenerate", "edit", "shorten", "copy")):
            case "regenerate" if turns:
                place.learn()
                chat.regenerate()
            case "edit" if turns:
                chat.edit(2 * chance.randrange(turns), new())
            case "shorten" if turns > 2:
                chat.messages = chat.messages[-4:]
                chat.say(new())
            case "copy":
                chat = deepcopy(chat)
                chats.append(chat)
                chat.say(new())
            case _:
                chat.say(new())
        seen = [(one["role"], one["content"].split("</memory-context>\n\n")[-1]) for one in place.asked()]
        own = [(one["role"], one["content"]) for one in chat.messages[:-1]]
        assert seen[-len(own) :] == own
    held = [content for _, content in place.remembered()]
    assert [held.count(text) for text in said] == [1] * len(said)


def test_more_messages_than_anybody_has_are_refused(place: Place) -> None:
    messages = [{"role": "user", "content": "a"}] * 20_001
    body = {"model": "hermes:full", "messages": messages}
    refused = httpx.post(f"{place.url}/chat/completions", json=body, timeout=60, verify=PLAIN)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages")
    assert "20,001 items; at most 20,000 are allowed" in refused.json()["error"]["message"]
