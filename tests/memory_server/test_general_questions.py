"""General questions about a person, asked with the official client without a model."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from honcho import Honcho
from pydantic import BaseModel

from hermes.honcho.recall_policy import COLD, WARM
from tests.memory_server.sdk import Caller
from tests.memory_server.talking import say, settle

STOCK = "What should I know about this user?"
"""A question that other clients ask before a conversation starts."""
GENERAL = [
    COLD,
    WARM,
    STOCK,
    "Wer ist diese Person?",
    "¿Quién es esta persona?",
    "Qui est cette personne ?",
    "这个人是谁？",
]
TOLD = (
    "I moved to Malta in spring.",
    "My bank password is moonshine.",
    "I prefer short answers.",
    "Where did I put the keys?",
    "I am allergic to peanuts.",
)


needs_chat = pytest.mark.skipif(not hasattr(Honcho, "chat"), reason="this version of the SDK does not have it")


@pytest.fixture
def told(http: httpx.Client) -> None:
    http.post("/sessions", json={"id": "talk"}).raise_for_status()
    say(http, "talk", *TOLD, peer="alice")
    settle(http)


@pytest.fixture
async def alice(call: Caller, honcho: Honcho, told: None) -> Any:
    return await call(honcho.peer, "alice")


async def test_a_general_question_gets_what_is_held_and_no_secret(call: Caller, alice: Any) -> None:
    for question in (*GENERAL, "What do you know about Alice?"):
        answer = await call(alice.chat, question)
        assert "peanuts" in answer, question
        assert "Malta" in answer, question
        assert "moonshine" not in answer, question
        assert "keys" not in answer, question
    assert "moonshine" in await call(alice.chat, "What is my bank password?")


@needs_chat
async def test_a_card_comes_first_but_not_where_sessions_are_named(call: Caller, alice: Any) -> None:
    await call(alice.set_card, ["Name: Alice Borg", "Her PIN is 4711"])
    lines = (await call(alice.chat, STOCK)).splitlines()
    assert lines[2:4] == ["Card:", "- Name: Alice Borg"]
    assert not any("4711" in line for line in lines)
    narrow = await call(alice.chat, STOCK, sessions=["talk"])
    assert "Borg" not in narrow
    assert "peanuts" in narrow


@needs_chat
async def test_general_answers_keep_their_sources_shape_and_stream(call: Caller, alice: Any) -> None:
    class Shape(BaseModel):
        summary: str
        facts: list[str]

    told = await call(alice.chat, STOCK, include_evidence=True)
    assert any("peanuts" in found.content for found in told.evidence.conclusions)
    shaped = await call(alice.chat, STOCK, response_format=Shape)
    assert any("peanuts" in fact for fact in shaped.facts)
    stream = await call(alice.chat_stream, STOCK)
    assert "peanuts" in "".join(await call.pieces(stream))


async def test_of_whom_nothing_is_known_nothing_is_said(call: Caller, honcho: Honcho, alice: Any) -> None:
    bob = await call(honcho.peer, "bob")
    assert await call(bob.chat, STOCK) is None


async def test_what_a_person_only_asked_is_not_quoted_to_them(call: Caller, alice: Any) -> None:
    assert await call(alice.chat, "Where did I put the keys?") is None
