"""What memory was not told, it says so: by what others said, and by words that nobody used."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from honcho import Honcho

from hermes.memory_server.engine.dialectic import HEAD, UNTOLD
from hermes.ranking.admission import LEAST_LIKELY, AnswerFeatures, likelihood
from tests.memory_server.sdk import Caller
from tests.memory_server.talking import say, settle

MARA = ("I adopted a greyhound named Biscuit in May.", "My sister paints watercolours of harbours.")
JONAS = ("I broke my wrist while climbing in Arco.", "We baked sourdough bread on Sunday.")


@pytest.fixture
def told(http: httpx.Client) -> None:
    http.post("/sessions", json={"id": "talk"}).raise_for_status()
    for mine, yours in zip(MARA, JONAS, strict=True):
        say(http, "talk", mine, peer="Mara")
        say(http, "talk", yours, peer="Jonas")
    settle(http)


@pytest.fixture
async def mara(call: Caller, honcho: Honcho, told: None) -> Any:
    return await call(honcho.peer, "Mara")


@pytest.mark.contract("9.5")
async def test_an_answer_that_was_told_is_quoted(call: Caller, mara: Any) -> None:
    answer = await call(mara.chat, "What is the name of Mara's greyhound?")
    assert answer.startswith(HEAD)
    assert "Biscuit" in answer


@pytest.mark.contract("9.5")
async def test_what_another_person_said_of_themselves_is_no_answer(call: Caller, mara: Any) -> None:
    answer = await call(mara.chat, "Where did Mara break her wrist while climbing?")
    assert answer is None or answer.startswith(UNTOLD)


@pytest.mark.contract("9.5")
async def test_what_nobody_spoke_of_is_admitted(call: Caller, mara: Any) -> None:
    answer = await call(mara.chat, "Which vaccine did the llama get at the observatory?")
    assert answer is None or answer.startswith(UNTOLD)


@pytest.mark.contract("9.5")
def test_evidence_says_whether_the_answer_was_told(http: httpx.Client, told: None) -> None:
    def is_told(query: str) -> bool:
        return bool(http.post("/ext/evidence", json={"query": query}).raise_for_status().json()["is_told"])

    assert is_told("What is the name of Mara's greyhound?")
    assert is_told("I went for a walk."), "nothing was asked"
    assert not is_told("Where did Mara break her wrist while climbing?")
    assert not is_told("Which vaccine did the llama get at the observatory?")


def test_an_answer_is_less_likely_if_only_somebody_else_fits() -> None:
    own = AnswerFeatures(known=0.9, by_another=0.0, meaning=0.6, score=10.0)
    another = AnswerFeatures(known=0.9, by_another=1.0, meaning=0.6, score=10.0)
    assert likelihood(another) < LEAST_LIKELY < likelihood(own)


def test_an_answer_is_less_likely_if_nobody_used_the_words() -> None:
    known, unknown = (AnswerFeatures(share, 0.0, 0.3, 4.0) for share in (0.95, 0.2))
    assert likelihood(unknown) < LEAST_LIKELY < likelihood(known)
    assert likelihood(None) == 0.0
