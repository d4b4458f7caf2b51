"""Changed values: which of two statements about a value ranks first."""

from __future__ import annotations

import pytest

from hermes.ranking.changes import SaidText, asked_kind, count_looked_at, denies, names_change, put_newer_first
from hermes.ranking.words import split_words, telling_words

pytestmark = pytest.mark.contract("9.5")
OLDER, NEWER = 0, 1


def reorder(question: str, *said: str, speakers: str = "") -> list[int]:
    """Return the positions after reordering; each text is a day later than the one before."""
    who = speakers or "a" * len(said)
    found = [SaidText(text, who[day], day * 86_400.0) for day, text in enumerate(said)]
    return put_newer_first(question, telling_words(split_words(question)), found)


@pytest.mark.parametrize(
    ("question", "older", "newer"),
    [
        (
            "How many chickens do I keep in the garden?",
            "We keep 4 chickens in the garden, they lay well.",
            "The garden is full: the chickens are now 7.",
        ),
        ("How much is our rent?", "Our rent for the flat is $780.", "The rent of our flat was raised to $845."),
        (
            "When is the wedding in Leeds?",
            "The wedding in Leeds is on 16 May.",
            "We moved the Leeds wedding to 6 June.",
        ),
        ("What time is choir practice?", "Choir practice is at 7 pm.", "Choir practice is at 6:30 pm now."),
        (
            "What percentage of the loan is paid off?",
            "We have paid off 30% of the loan.",
            "The part of the loan that is paid off has reached 45%.",
        ),
        (
            "Wie viele Hühner leben im Garten?",
            "Im Garten leben 4 Hühner.",
            "Inzwischen leben 7 Hühner im Garten.",
        ),
        ("¿Cuántas gallinas hay en el jardín?", "En el jardín hay 4 gallinas.", "Ahora hay 7 gallinas en el jardín."),
        (
            "Combien de poules dans le jardin ?",
            "Il y a 4 poules dans le jardin.",
            "Il y a maintenant 7 poules dans le jardin.",
        ),
        ("花园里有多少只母鸡？", "花园里有 4 只母鸡。", "花园里现在有 7 只母鸡。"),
    ],
)
def test_a_value_that_was_changed_later_comes_first(question: str, older: str, newer: str) -> None:
    assert reorder(question, older, newer) == [NEWER, OLDER]


@pytest.mark.parametrize(
    ("older", "newer", "why"),
    [
        ("We keep 4 chickens in the garden.", "I saw 7 chickens in a garden.", "no word of change"),
        ("We keep 4 chickens in the garden.", "The 4 chickens in the garden are new.", "the same value"),
        ("We keep 4 chickens in the garden.", "The new fence for the garden chickens is $900.", "another unit"),
        (
            "We keep 4 chickens in the garden.",
            "The chickens have a new house of 12 metres in the garden.",
            "not counted",
        ),
        ("We keep 4 chickens in the garden.", "The chickens came to the garden, new, in 2019.", "a year is no number"),
    ],
)
def test_other_statements_stay_where_they_are(older: str, newer: str, why: str) -> None:
    assert reorder("How many chickens do I keep in the garden?", older, newer) == [OLDER, NEWER], why


def test_values_of_two_people_are_not_compared() -> None:
    said = ("We keep 4 chickens in the garden.", "The chickens in our garden are now 7.")
    assert reorder("How many chickens are in the garden?", *said, speakers="ab") == [OLDER, NEWER]


def test_a_value_that_is_only_repeated_is_no_change() -> None:
    said = ("The chickens in the garden: 7.", "In the garden the chickens are now 9.", "New: 7 chickens in the garden!")
    found = [SaidText(text, "a", day) for day, text in enumerate(said)]
    question = "How many chickens are in the garden?"
    order = put_newer_first(question, telling_words(split_words(question)), [found[1], found[0], found[2]])
    assert order == [0, 1, 2], "the change to 9 stays before the 7 that was known before it"


def test_both_sides_of_a_denial_are_among_the_first() -> None:
    said = ["I have never been to Rome.", *["Rome is lovely."] * 12, "I flew to Rome in May."]
    order = reorder("Have I ever been to Rome?", *said, speakers="a" + "b" * 12 + "a")
    assert order[:4] == [0, 1, 2, 13]
    assert sorted(order) == list(range(14)), "nothing is lost"


def test_questions_that_reckon_or_ask_for_no_value_change_nothing() -> None:
    assert asked_kind("How many days are between the two trips?") is None
    assert count_looked_at("What is my cat called?") == 0
    said = ("My cat is 4.", "My cat is now 5.")
    assert reorder("What is my cat called?", *said) == [OLDER, NEWER]


@pytest.mark.parametrize(
    "text", ["I moved.", "Inzwischen ja.", "Ahora sí.", "C'est changé.", "我搬到了波尔图", "En fait, plutôt."]
)
def test_words_of_change_are_known_in_five_languages(text: str) -> None:
    assert names_change(text)


@pytest.mark.parametrize(
    "text", ["I haven't yet.", "Ich war nie da.", "Nunca fui.", "Je n'y suis jamais allé.", "我从来没去过"]
)
def test_denials_are_known_in_five_languages(text: str) -> None:
    assert denies(text)


def test_long_texts_are_read_in_bounded_time() -> None:
    for odd in ("1 ", "now 5% ", "May 1 ", "```", "never ", "$1,", "а7"):
        reorder(
            "How many percent of the 5 are never paid off?", (odd * 50_000)[:200_000], "Now 7% of them are paid off."
        )
