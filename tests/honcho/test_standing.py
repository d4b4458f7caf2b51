"""The standing part: lasting facts about a person come first in every request, after any number of messages."""

from __future__ import annotations

import pytest

from hermes.honcho.evidence import TITLE, RecalledEvidence, ScoredMessage, quote_all, quote_standing
from hermes.honcho.injection import EVIDENCE, STANDING, STANDING_LINES, Section, budget_chars, compose
from hermes.honcho.recall_reader import RecalledMessage, RecalledStanding
from hermes.memory.active import Deadlines
from hermes.memory.provider import Part
from tests.honcho.between import Asked, Instead, like_a_model
from tests.honcho.recalling import ANN, BOT, DIRECT, GROUP, GUEST, Recalling

pytestmark = pytest.mark.contract("7.3")
NAME, JOB, DIET = "My name is Ann Lind.", "I work as a vet.", "I'm allergic to walnuts."
DAY = "2023-05-08T10:00:00Z"
CHAT = [(ANN, f"I had lunch number {number} and it was fine.") for number in range(95)]
HEAD = "## Keep in mind about ann\n"


def lines(*texts: str, kind: str = "identity") -> Section:
    held = [RecalledStanding(f"c{number}", text, kind, DAY, "s") for number, text in enumerate(texts)]
    return Section(STANDING_LINES, "Keep in mind", "", 1.0, quotes=quote_standing(held))


def evidence(*texts: str) -> Section:
    found = [ScoredMessage(RecalledMessage(text, ANN, DAY, "m", "s"), 0.5) for text in texts]
    return Section(EVIDENCE, TITLE, "", 1.0, quotes=quote_all(RecalledEvidence(found), "cat", BOT))


def by_layer(*sections: Section, limit: int = 3000) -> dict[str, Part]:
    return {part.layer: part for part in compose(sections, limit)}


async def test_name_and_health_stand_first_after_much_small_talk(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("elsewhere", (ANN, NAME), (ANN, DIET), *CHAT[:60])
    recalling.tell("later", *CHAT)
    async with recalling.host() as talk:
        for question in ("Which film should I watch tonight?", "What's my name?"):
            text = await talk.turn(question)
            assert NAME in text
            assert DIET in text
    assert text.index(NAME) < text.index(DIET), "the card has both"
    assert recalling.between.count("evidence") == 2, "they come with the evidence"


@pytest.mark.contract("7.10")
async def test_secret_is_quoted_only_when_it_is_asked_for(recalling: Recalling) -> None:
    recalling.configure(contextTokens=120)
    recalling.tell("elsewhere", (ANN, NAME), (ANN, "I live in Ghent and my wifi password is swordfish."), *CHAT)
    async with recalling.host() as talk:
        assert "swordfish" not in await talk.turn("How was my lunch number 7?")
        assert "swordfish" in await talk.turn("What is the wifi password?")


async def test_guest_has_their_own_lines_and_a_group_none(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("owners", (ANN, NAME))
    recalling.tell("guests", ("17", "My name is Bob Hale."))
    async with recalling.host() as talk:
        own = await talk.turn("Which film should I watch?", DIRECT, GUEST)
        group = await talk.turn("Which film should we watch?", GROUP, GUEST)
    assert "Bob Hale" in own
    assert "Ann Lind" not in own
    assert not [name for name in ("Bob Hale", "Ann Lind") if name in group]


async def test_standing_part_stays_when_evidence_is_late_and_goes_when_it_is_forgotten(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("elsewhere", (ANN, NAME))
    nothing = Instead({"id": "s", "messages": []})
    is_slow = False

    def rule(asked: Asked) -> Instead | None:
        if asked.what == "evidence" and is_slow:
            return Instead({"messages": [], "conclusions": []}, hang=True)
        return nothing if asked.what == "context" and "/ext/" not in asked.path else None

    recalling.between.rule = rule
    async with recalling.host(Deadlines(first_turn=20.0, turn=2.0)) as talk:
        memory = await talk.memory()
        assert NAME in await talk.turn("Which film should I watch?")
        is_slow = True
        late = await memory.recall([await talk.say("Which book should I read?")], memory.begin())
        assert NAME in late.text
        assert late.missed == "evidence: it was not there in time"


async def test_card_is_the_standing_part_of_another_server(recalling: Recalling) -> None:
    recalling.configure()
    recalling.set_card(BOT, ["Name: Ann Lind", "Allergic to walnuts"], ANN)
    recalling.tell("elsewhere", *CHAT[:20])
    recalling.between.rule = like_a_model("an answer")
    async with recalling.host() as talk:
        text = await talk.turn("Which film should I watch?")
    assert text.startswith("## Key facts about ann\nName: Ann Lind\nAllergic to walnuts")


@pytest.mark.contract("7.8")
def test_worthiest_lines_stay_within_a_fifth_and_the_others_are_named() -> None:
    part = by_layer(lines(*(f"I own house number {number}." for number in range(200))))[STANDING_LINES]
    assert 500 < len(part.text) <= 600
    assert "house number 0." in part.text
    assert part.sources[0] == "identity, conclusion c0, session s"
    assert part.left_out[0].startswith(f"I own house number {len(part.sources)}. (identity, conclusion c")
    assert len(part.left_out) == 20
    roomy = by_layer(lines(*(f"I own house number {number}." for number in range(200))), limit=32_000)
    assert len(roomy[STANDING_LINES].text) <= 1200


def test_card_and_standing_lines_share_the_room_and_say_nothing_twice() -> None:
    card = Section(
        STANDING, "Key facts", "\n".join([NAME, *(f"Fact number {number} of ann." for number in range(90))]), 1.0
    )
    parts = by_layer(lines(NAME, *(f"I own house number {number}." for number in range(90))), card)
    assert len(parts[STANDING].text) > 200
    assert len(parts[STANDING_LINES].text) > 200
    assert len(parts[STANDING].text) + len(parts[STANDING_LINES].text) <= 600
    assert sum(part.text.count(NAME) for part in parts.values()) == 1
    alone = by_layer(lines(NAME), card)
    assert len(alone[STANDING].text) > 450, "what one leaves is the other's"


def test_standing_line_is_not_quoted_again() -> None:
    said = [f"My cat number {number} is called Miso." for number in range(60)]
    for place in (0, 59):
        parts = by_layer(lines(f"ann: {said[place]}", NAME), evidence(*said))
        assert [part.text.count(said[place]) for part in parts.values()] == [1, 0]


@pytest.mark.parametrize("tokens", [1, 30, 100, 500])
def test_budget_holds_with_a_standing_part(tokens: int) -> None:
    sections = (
        lines(*(f"I own house number {number}." for number in range(90))),
        evidence(*(text for _, text in CHAT)),
    )
    text = "\n\n".join(part.text for part in compose(sections, budget_chars(tokens)) if part.text)
    assert len(text) <= budget_chars(tokens)


def test_line_says_when_it_was_said_and_what_a_relative_time_means() -> None:
    held = [RecalledStanding("c", "ann: I moved to Oslo yesterday.", "identity", DAY, "s")]
    held.append(RecalledStanding("d", f"ann: {NAME}", "name", DAY))
    moved, named = quote_standing(held)
    assert (moved.text, moved.when) == ("ann: I moved to Oslo yesterday. (7 May 2023)", " (said 8 May 2023)")
    assert (named.text, named.why) == (f"ann: {NAME}", "name, conclusion d, session none")
