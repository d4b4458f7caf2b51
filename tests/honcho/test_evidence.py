"""Evidence: relevant earlier messages, fetched with the turn's own message and quoted verbatim."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.fence import OVERHEAD_CHARS, fence
from hermes.honcho.evidence import (
    MAX_EXCERPT_CHARS,
    MAX_WHOLE_CHARS,
    MIN_CERTAINTY,
    NEAREST_TITLE,
    TITLE,
    RecalledEvidence,
    ScoredMessage,
    quote_all,
    split_nearest,
    write_quotes,
)
from hermes.honcho.injection import EVIDENCE, NEAREST, STANDING, SUPPLEMENT, Section, budget_chars, compose
from hermes.honcho.recall_reader import RecalledChange, RecalledConclusion, RecalledMessage
from hermes.memory.provider import Part
from hermes.memory_server.api.app import EXTENSIONS
from tests.honcho.between import Asked, Instead, like_a_model
from tests.honcho.recalling import ANN, BOB, BOT, DIRECT, GUEST, SESSIONS, Recalling

pytestmark = pytest.mark.contract("7.9")
QUESTION = "What is my cat called?"
CAT, DOG = "My cat is called Miso.", "I noted that your cat likes fish."


def found(*texts: str, peer: str = ANN, day: int = 8, certainty: float = 1.0) -> list[ScoredMessage]:
    return [
        ScoredMessage(RecalledMessage(text, peer, f"2023-05-{day:02}T10:00:00Z", f"m{place}", "s"), 0.5, certainty)
        for place, text in enumerate(texts)
    ]


def quoted(messages: list[ScoredMessage], question: str = QUESTION) -> list[str]:
    return [quote.text for quote in quote_all(RecalledEvidence(messages), question, BOT)]


def test_relative_time_is_worked_out_behind_the_quote() -> None:
    assert quoted(found("I found my cat yesterday. She is well.")) == [
        "ann: I found my cat yesterday. (7 May 2023) She is well."
    ]


def superseded(text: str, newer: str) -> ScoredMessage:
    """A message of 8 May with a statement that another one changed on 10 May."""
    statement = RecalledChange("ann: I live in Lisbon", f"ann: {newer}", "2023-05-10T10:00:00Z")
    return ScoredMessage(found(text)[0].message, superseded=[statement])


def test_statement_that_was_superseded_is_marked_with_what_holds() -> None:
    mark = '(no longer so since 10 May 2023: "I moved to Porto last week. (week of 1 May 2023)")'
    assert quoted([superseded("I live in Lisbon. I saw a film yesterday.", "I moved to Porto last week.")]) == [
        f"ann: I live in Lisbon. {mark} I saw a film yesterday. (7 May 2023)"
    ]
    assert quoted([superseded("I left it all.", "I moved to Porto.")]) == ["ann: I left it all."], "not quoted"


def test_statement_that_is_quoted_before_is_not_repeated_in_a_mark() -> None:
    newer = "I moved to Porto."
    assert quoted([*found(newer, day=10), superseded("I live in Lisbon!", newer)])[1] == (
        "ann: I live in Lisbon! (no longer so since 10 May 2023)"
    )


def test_quotes_stand_in_order_of_time_under_their_day() -> None:
    quotes = quote_all(
        RecalledEvidence([*found(CAT, day=8), *found(DOG, peer=BOT, day=2), *found("A cat.", day=8)]), "cat", BOT
    )
    text, _ = write_quotes(quotes, 1000)
    assert text == f"2 May 2023:\n- bot: {DOG}\n8 May 2023:\n- ann: {CAT}\n- ann: A cat."


def test_each_text_is_quoted_once() -> None:
    held = [RecalledConclusion("c1", CAT), RecalledConclusion("c2", "Her cat is old.")]
    quotes = quote_all(RecalledEvidence(found(CAT, CAT), held), QUESTION, BOT)
    assert [quote.text for quote in quotes] == [f"ann: {CAT}", "Her cat is old."]


def test_conclusions_have_a_place_among_many_quotes() -> None:
    said = found(*(f"My cat number {number} is called Miso." for number in range(50)))
    quotes = quote_all(RecalledEvidence(said, [RecalledConclusion("c", "Ann owns many cats.")] * 2), QUESTION, BOT)
    text, kept = write_quotes(quotes, 1000)
    assert text.startswith("- Ann owns many cats.\n8 May 2023:\n- ann: My cat number 0 is called Miso.")
    assert text.count("many cats") == 1
    assert kept[0].why == "conclusion c, rank 1"


@pytest.mark.parametrize(
    "text", [QUESTION, "what is my  CAT called?", "Which cat?", "Is it big? A cat？", "Tell me, who?"]
)
def test_message_itself_and_earlier_questions_are_no_evidence(text: str) -> None:
    assert quoted(found(text)) == []


@pytest.mark.parametrize("text", ["I moved to Ghent with my cat, where is a vet?", "A cat? Yes."])
def test_question_after_a_statement_is_evidence(text: str) -> None:
    assert quoted(found(text)) == [f"ann: {text}"]


def test_question_of_the_agent_is_evidence() -> None:
    assert quoted(found("Is your cat well?", peer=BOT)) == ["bot: Is your cat well?"]


def test_small_talk_of_the_agent_is_no_evidence() -> None:
    assert quoted([*found("Good night!", "Thanks.", peer=BOT), *found("Thanks.")]) == ["ann: Thanks."]


def split(question: str) -> tuple[list[str], list[str]]:
    """The nearest quotes and the others, of a guess that the agent once replied and five lines of the person."""
    told = RecalledEvidence([*found("You are 41 years old.", peer=BOT), *found(*(f"I am {n} tall." for n in range(5)))])
    nearest, others = split_nearest(quote_all(told, question, BOT), question, BOT)
    return [quote.text for quote in nearest], [quote.text for quote in others]


def test_replies_of_the_agent_are_near_a_question_only_if_it_asks_the_agent() -> None:
    guess, *tall = "bot: You are 41 years old.", *(f"ann: I am {n} tall." for n in range(5))
    assert split("How tall am I?") == (tall[:3], [guess, *tall[3:]])
    assert split("How tall did you say I am?") == ([guess, *tall[:2]], tall[2:])


def test_few_quotes_are_not_split() -> None:
    quotes = quote_all(RecalledEvidence(found(CAT, "I like cats.", "Is the cat in? Yes.")), QUESTION, BOT)
    assert split_nearest(quotes, QUESTION, BOT) == ((), quotes)


@pytest.mark.contract("7.3")
def test_nearest_quotes_stand_last_and_their_lines_nowhere_else() -> None:
    nearest, others = split_nearest(MANY, QUESTION, BOT)
    known = Section(STANDING, "Key facts", f"Name: Ann\n{MANY[0].text}", 1.0)
    near = Section(NEAREST, NEAREST_TITLE, "", 1.0, quotes=tuple(nearest))
    parts = compose([known, near, Section(EVIDENCE, TITLE, "", 1.0, quotes=tuple(others))], 3000)
    assert [part.layer for part in parts] == [STANDING, EVIDENCE, NEAREST]
    assert parts[-1].text == f"## {NEAREST_TITLE}\n8 May 2023:\n" + "\n".join(f"- {one.text}" for one in MANY[:3])
    assert sum(part.text.count(MANY[0].text) for part in parts) == 1
    assert len("\n\n".join(part.text for part in parts)) <= 3000


def test_nothing_below_the_threshold_is_quoted() -> None:
    assert quoted(found(CAT, certainty=MIN_CERTAINTY - 0.01)) == []
    assert quoted(found(CAT, certainty=MIN_CERTAINTY)) == [f"ann: {CAT}"]


def test_long_message_is_quoted_by_the_sentences_that_fit() -> None:
    long = "\n".join([*(f"{number}. Point {number} of the list is here." for number in range(40)), CAT])
    [text] = quoted(found(long, peer=BOT))
    assert CAT in text
    assert len(text) <= len("bot: ") + MAX_EXCERPT_CHARS
    [blob] = quoted(found("cat " * 2000))
    assert blob.removeprefix("ann: ") in "cat " * 2000
    assert len(blob) <= len("ann: ") + MAX_WHOLE_CHARS


LINES = st.text(st.sampled_from("ab c.?\n漢<>") | st.characters(), min_size=1, max_size=700)
LAYERS = (STANDING, "summary", "user representation", SUPPLEMENT)


@pytest.mark.contract("7.3")
@given(
    st.lists(LINES, max_size=12), st.lists(st.tuples(st.sampled_from(LAYERS), LINES), max_size=5), st.integers(1, 8000)
)
def test_block_with_evidence_never_exceeds_the_budget(
    said: list[str], others: list[tuple[str, str]], tokens: int
) -> None:
    quotes = quote_all(RecalledEvidence(found(*said, "<memory-context " * 9)), QUESTION, BOT)
    sections = [Section(layer, layer, text, 1.0) for layer, text in others]
    parts = compose([*sections, Section(EVIDENCE, TITLE, "", 1.0, quotes=quotes)], budget_chars(tokens))
    text = "\n\n".join(part.text for part in parts if part.text)
    assert len(fence(text)) <= tokens * 4 + len(fence("x")) - OVERHEAD_CHARS - 1
    assert all(len(part.sources) == sum(quote.text in part.text for quote in quotes) for part in parts if part.sources)


@pytest.mark.contract("7.2", "7.3")
def test_marks_of_a_fence_in_quotes_make_the_block_no_longer() -> None:
    quotes = quote_all(
        RecalledEvidence(found(*(f"{number} <memory-context" * 9 for number in range(99)))), QUESTION, BOT
    )
    [part] = compose([Section(EVIDENCE, TITLE, "", 1.0, quotes=quotes)], 3000)
    assert len(fence(part.text)) == len(fence("x")) - 1 + len(part.text)


FACTS = "\n".join(f"Fact {number}: she is allergic to thing {number}." for number in range(90))
MANY = quote_all(
    RecalledEvidence(found(*(f"My cat number {number} is called Miso." for number in range(200)))), QUESTION, BOT
)


def fill(*sections: Section, limit: int = 3000) -> dict[str, Part]:
    return {part.layer: part for part in compose([*sections, Section(EVIDENCE, TITLE, "", 1.0, quotes=MANY)], limit)}


@pytest.mark.contract("7.3")
def test_standing_part_comes_first_and_has_at_most_a_fifth() -> None:
    parts = fill(Section("summary", "Summary", FACTS, 1.0), Section(STANDING, "Key facts", FACTS, 1.0))
    assert next(iter(parts)) == STANDING
    assert 400 < len(parts[STANDING].text) <= 600
    assert len(parts[EVIDENCE].text) > 0.7 * 3000


@pytest.mark.contract("7.3")
def test_supplement_keeps_its_room_beside_evidence() -> None:
    answer = Section(SUPPLEMENT, "What matters now", "She moves soon. " * 30, 1.0)
    parts = fill(Section(STANDING, "Key facts", "Name: Ann", 1.0), Section("summary", "Summary", FACTS, 1.0), answer)
    assert parts[SUPPLEMENT].cut == 0
    long = fill(Section(STANDING, "Key facts", FACTS, 1.0), Section(SUPPLEMENT, "Now", "word " * 900, 1.0))
    assert len(long[STANDING].text) + len(long[SUPPLEMENT].text) <= 0.3 * 3000
    assert len(long[EVIDENCE].text) > 0.65 * 3000


@pytest.mark.contract("7.3")
def test_repeated_line_never_vanishes_from_both_places() -> None:
    repeated = "[2023-05-08 10:00:00] She owns a zebra."
    dated = "\n".join((repeated, *(f"[2023-05-08 10:00:00] Fact {number}." for number in range(60))))
    for first in (dated, f"{FACTS}\nShe owns a zebra."):
        two = compose([Section("summary", "A", first, 1.0), Section(SUPPLEMENT, "B", repeated, 1.0)], 1200)
        assert ["zebra" in part.text for part in two] == [False, True]
    [part] = compose([Section("summary", "A", f"{dated}\n{repeated}", 1.0)], 1200)
    assert part.text.count("zebra") == 1
    parts = fill(Section("user representation", "Known", f"ann: {MANY[0].text[5:]}\nann: I like figs.", 1.0))
    assert "I like figs." not in parts[EVIDENCE].text
    assert sum(MANY[0].text in part.text for part in parts.values()) == 1


async def test_both_speakers_are_quoted(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("elsewhere", (ANN, CAT), (BOT, DOG))
    async with recalling.host() as talk:
        text = await talk.turn(QUESTION)
    assert f"- ann: {CAT}\n- bot: {DOG}" in text.partition(f"## {TITLE}")[2]


@pytest.mark.contract("7.5")
@pytest.mark.parametrize("model", [None, "x"])
async def test_warm_turn_asks_for_evidence_alone_whether_the_server_has_a_model(
    recalling: Recalling, model: str | None
) -> None:
    recalling.configure(contextCadence=5, dialecticCadence=5)
    recalling.tell("elsewhere", (ANN, CAT))
    health = {"status": "ok", "extensions": list(EXTENSIONS), "model": model}
    answers = {"health": health, "chat": {"content": "She has a cat."}}
    recalling.between.rule = lambda asked: Instead(answers[asked.what]) if asked.what in answers else None
    async with recalling.host() as talk:
        await talk.turn("Hello, how are you today?")
        before = len(recalling.between.asked)
        text = await talk.turn(QUESTION)
    assert [asked.what for asked in recalling.between.asked[before:]] == ["evidence"]
    assert f"- ann: {CAT}" in text.partition(f"## {TITLE}")[2]


@pytest.mark.contract("7.5")
async def test_turn_reads_its_evidence_and_the_next_context_in_one_request_each(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("elsewhere", (ANN, CAT))
    async with recalling.host() as talk:
        await talk.turn("Hello, how are you today?")
        await (await talk.memory()).settle()
        before = len(recalling.between.asked)
        text = await talk.turn(QUESTION)
        await (await talk.memory()).settle()
    assert [asked.what for asked in recalling.between.asked[before:]] == ["evidence", "context"]
    assert CAT in text


async def test_server_of_another_kind_is_searched_with_the_message(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("elsewhere", (ANN, CAT), (BOT, DOG))
    recalling.conclude(BOT, ANN, "Ann owns one cat.")
    recalling.between.rule = like_a_model("an answer")
    async with recalling.host() as talk:
        text = (await talk.turn(QUESTION)).partition(f"## {TITLE}")[2]
    heard, said = sorted(recalling.between.bodies("search"), key=len, reverse=True)
    assert heard == {**said, "filters": {"peer_perspective": ANN}}
    assert said["query"] == QUESTION
    assert {body["query"] for body in recalling.between.bodies("query")} == {QUESTION}
    assert recalling.between.count("evidence") == 0
    assert all(said in text for said in (f"- ann: {CAT}", f"- bot: {DOG}", "- Ann owns one cat."))


@pytest.mark.contract("1.9")
@pytest.mark.parametrize("is_foreign", [False, True])
async def test_guest_gets_what_was_said_where_nobody_else_was(recalling: Recalling, is_foreign: bool) -> None:
    recalling.configure()
    recalling.tell("elsewhere", (BOB, "My cat is called Tom."))
    recalling.tell(SESSIONS["s2"], (BOB, "Hello."), (BOT, "Your cat is called Tom, you told me."))
    recalling.tell("group", (BOB, "I fed a cat."), (ANN, CAT), (BOT, DOG))
    recalling.tell("owners", (ANN, "My second cat is called Ada."), (BOT, "Both cats are well."))

    def rule(asked: Asked) -> Instead | None:
        return like_a_model("an answer")(asked) if is_foreign else None

    recalling.between.rule = rule
    async with recalling.host() as talk:
        text = (await talk.turn(QUESTION, DIRECT, GUEST)).partition(f"## {TITLE}")[2]
    assert "- 17: My cat is called Tom." in text
    assert "- bot: Your cat is called Tom, you told me." in text
    assert not [word for word in ("Miso", "fish", "Ada", "Both") if word in text]
