"""Requests built from anything that the store may hold."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.context import INTERRUPTED_RESULT, build_context
from hermes.fence import TAG
from hermes.llm.events import Reply
from hermes.memory.provider import Part, Recalled
from hermes.store.store import Store
from hermes.types import Json, Message, ToolCall
from tests.agent.agents import check_conversation, make_agent, take_turn
from tests.agent.histories import messages, view
from tests.llm.scripted import ScriptedModel
from tests.memory.providers import Recorder


@pytest.mark.contract("2.6")
@given(
    head=messages(), summary=st.one_of(st.none(), st.text(max_size=9)), tail=messages(), recalled=st.text(max_size=9)
)
def test_any_stored_sequence_gives_a_conversation_that_endpoints_accept(
    head: tuple[Message, ...], summary: str | None, tail: tuple[Message, ...], recalled: str
) -> None:
    built = build_context("prompt", view(head, summary, tail), recalled)
    assert built[0] == {"role": "system", "content": "prompt"}
    check_conversation(built)
    for message in built:
        for call in message.get("tool_calls", []):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


@given(tail=messages())
def test_everything_that_was_said_and_every_result_of_a_call_is_in_the_request(tail: tuple[Message, ...]) -> None:
    built = build_context("", view((), None, tail))
    for role in ("system", "user"):
        said = [m.content for m in tail if m.role == role and m.content]
        assert [m["content"] for m in built if m["role"] == role] == said
    calls = [call["function"]["name"] for m in built for call in m.get("tool_calls", [])]
    assert calls == [call.name for m in tail if m.role == "assistant" for call in m.tool_calls]


@given(tail=messages(), recalled=st.text(min_size=1).filter(str.strip))
def test_recalled_text_changes_nothing_but_the_last_user_message(tail: tuple[Message, ...], recalled: str) -> None:
    without, with_it = (build_context("p", view((), None, tail), text) for text in ("", recalled))
    users = [place for place, message in enumerate(without) if message["role"] == "user"]
    differing = [place for place, (one, other) in enumerate(zip(without, with_it, strict=True)) if one != other]
    assert differing == users[-1:]
    for place in differing:
        assert with_it[place]["content"].endswith(without[place]["content"])
        assert with_it[place]["content"].count(f"<{TAG}>") == 1


@pytest.mark.contract("2.6")
def test_results_of_calls_with_one_id_go_to_the_calls_in_order() -> None:
    calls = (ToolCall("a", "x", "{}"), ToolCall("a", "y", "{}"), ToolCall("", "z", ""))
    said = [
        Message(1, "s", "user", "go", 0.0),
        Message(2, "s", "assistant", None, 0.0, tool_calls=calls),
        Message(3, "s", "tool", "first", 0.0, tool_call_id="a"),
        Message(4, "s", "tool", "second", 0.0, tool_call_id="a"),
    ]
    built = build_context("", view((), None, tuple(said)))
    check_conversation(built)
    assert [m["content"] for m in built if m["role"] == "tool"] == ["first", "second", INTERRUPTED_RESULT]


class Recalling(Recorder):
    """A memory that recalls a different text in every turn."""

    turns = 0

    async def run(self, hook: str, answer: Any, *args: Any) -> Any:
        found = await super().run(hook, answer, *args)
        if hook != "recall":
            return found
        self.turns += 1
        return Recalled((Part("all", f"background number {self.turns}", 0.0, 4),))


@pytest.mark.contract("2.6")
async def test_requests_repeat_the_one_before_to_the_byte_up_to_its_last_user_message(store: Store) -> None:
    session = (await store.create_session("cli")).id
    note = ToolCall("n", "memory", '{"action": "add", "target": "user", "content": "Likes tea."}')
    asked: list[list[dict[str, Json]]] = []
    for _restart in range(2):
        model = ScriptedModel([Reply(text="noting", tool_calls=(note,)), *(Reply(text=f"reply {n}") for n in range(4))])
        agent = make_agent(store, session, model, plugin=Recalling())
        for turn in range(3):
            await take_turn(agent, f"message {turn}")
        await agent.close()
        asked += [list(request.messages) for request in model.requests]
    assert len(asked) == 8
    for before, after in pairwise(asked):
        last_user = max(place for place, message in enumerate(before) if message["role"] == "user")
        assert json.dumps(before[:last_user]) == json.dumps(after[:last_user])
    for messages_sent in asked:
        fenced = [m for m in messages_sent if TAG in m["content"]]
        assert fenced == [[m for m in messages_sent if m["role"] == "user"][-1]]
    assert len({json.dumps(messages_sent[0]) for messages_sent in asked}) == 1, "the system prompt changed"
    assert all(TAG not in (m.content or "") for m in (await store.view(session)).messages)


async def test_a_prompt_stays_the_same_when_notes_and_soul_change_later(store: Store) -> None:
    session = (await store.create_session("cli")).id
    model = ScriptedModel([Reply(text="one"), Reply(text="two"), Reply(text="three")])
    agent = make_agent(store, session, model)
    await take_turn(agent, "hello")
    agent.soul_file.write_text("You are someone else.")
    agent.notes.add("user", "Lives in Oslo.")
    await take_turn(agent, "and now?")
    other = (await store.create_session("cli")).id
    await take_turn(make_agent(store, other, model), "a new session")
    prompts = [request.messages[0]["content"] for request in model.requests]
    assert prompts[0] == prompts[1]
    assert "someone else" in prompts[2]
    assert "Lives in Oslo." in prompts[2]
