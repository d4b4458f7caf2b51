"""Memory reports questions that it cannot answer, by the statements and words it has."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from honcho import Honcho

from hermes.memory_server.engine.dialectic import HEAD, UNTOLD
from hermes.memory_server.engine.word_vectors import WordVectors
from hermes.ranking.admission import KNOWN_THRESHOLD, AskedWords, FoundLine, likelihood, read_features
from hermes.ranking.asked_values import holds_value
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


NOBODY: frozenset[int] = frozenset()
DOG = ["I adopted a greyhound in May.", "Ruth lives in Hull.", "My sister paints harbours."]


def judge(question: str, words: str, lines: list[str], **more: Any) -> float:
    asked = AskedWords(question, words.split(), more.pop("known", 1.0), more.pop("named", NOBODY), False, **more)
    return likelihood(read_features(asked, [FoundLine(line, 1) for line in lines], WordVectors().direction))


@pytest.mark.contract("9.5")
def test_an_answer_is_less_likely_if_only_somebody_else_fits() -> None:
    own = judge("Where did Mara climb?", "climb", ["I climb in Arco."], named=frozenset((1,)))
    another = judge("Where did Mara climb?", "climb", ["I climb in Arco."], named=frozenset((2,)), by_another=True)
    assert another < KNOWN_THRESHOLD < own


@pytest.mark.contract("9.5")
def test_an_answer_is_less_likely_if_nobody_used_the_words() -> None:
    known, unknown = (judge("Where does Ruth live?", "ruth live", DOG[1:], known=share) for share in (1.0, 0.1))
    assert unknown < known
    assert likelihood(None) == 0.0


@pytest.mark.contract("9.5")
def test_an_answer_is_less_likely_if_no_line_holds_both_the_person_and_the_thing() -> None:
    with_dog = ["Ruth has a dog called Rex.", *DOG]
    assert judge("Does Ruth have a dog?", "ruth dog", DOG) < judge("Does Ruth have a dog?", "ruth dog", with_dog)


@pytest.mark.contract("9.5")
def test_particulars_of_what_was_only_mentioned_are_less_likely() -> None:
    lines = ["I went to the workshop of Michele in July."]
    assert judge("What specific people were in the workshop?", "workshop", lines) < judge(
        "What people were in the workshop?", "workshop", lines
    )


@pytest.mark.contract("9.5")
def test_the_part_of_a_long_text_that_holds_the_words_is_read() -> None:
    filled = "So it goes on and on about nothing. " * 30
    near, far = f"{filled} The harbour festival is in Hull. {filled}", filled
    assert judge("Where is the harbour festival?", "harbour festival", [near]) > judge(
        "Where is the harbour festival?", "harbour festival", [far]
    )


@pytest.mark.contract("9.5")
def test_a_close_line_without_the_value_makes_an_answer_less_likely() -> None:
    asked = AskedWords("How old is the dog?", ["dog"], 1.0, NOBODY, False)
    without, having = (
        likelihood(read_features(asked, [FoundLine(text, 1, 0.6)], WordVectors().direction))
        for text in ("The dog ate a block of butter.", "The dog is nine.")
    )
    assert without < having


@pytest.mark.parametrize(
    ("question", "text", "is_held"),
    [
        ("Who is my brother?", "My brother Rangi runs a shop.", True),
        ("Who is my boss?", "I had lunch with my boss in Berlin.", False),
        ("What is the cat called?", "I call her Duchess.", True),
        ("What is Ann's last name?", "Ann is leaving in the fall.", False),
        ("How old is Esi?", "My wife Esi is seven months along.", False),
        ("How old is Kwame?", "We have a son, Kwame, he's three.", True),
        ("Combien gagne Inès ?", "Inès est apprentie.", False),
        ("¿Cuántos años tiene Carmen?", "Carmen, de cinco años.", True),
        ("Which hotel are we in?", "We go to the coast in July.", False),
        ("Which hotel are we in?", "We booked the Astoria.", True),
        ("Where did we meet?", "We met long ago.", False),
        ("朵朵的生日是哪天?", "我们有一个女儿,叫朵朵。", False),
        ("How much does Kestrel weigh?", "Kestrel sleeps all day.", False),
        ("What colour is the dog?", "Pepper is dark blue.", True),
        ("What colour is the dog?", "Pepper is a beagle.", False),
        ("How much did the car cost?", "We bought a Subaru.", False),
        ("How much did the car cost?", "The Subaru was $3,000.", True),
        ("What time does my choir start?", "I go to a choir on Thursdays.", False),
        ("What time does my choir start?", "Choir is at 7 pm.", True),
        ("What is the number of my plate?", "The car is red.", False),
        ("How old is Pieter?", "Pieter left there.", False),
        ("Wie alt ist Pieter?", "Pieter ist 31.", True),
        ("Do I like tea?", "Tea is fine.", True),
    ],
)
def test_a_value_is_of_the_kind_that_a_question_asks_for(question: str, text: str, is_held: bool) -> None:
    assert holds_value(question, text) is is_held
