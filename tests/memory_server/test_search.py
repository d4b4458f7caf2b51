"""Search in messages: words of every script, among many messages and in long ones."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal, get_args

import pytest

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.engine.clone import begin_clone, copy_part, finish_clone
from hermes.memory_server.engine.messages import append_messages, list_messages
from hermes.memory_server.engine.paging import PageRequest
from tests.memory_server.floor import draft, new_index, question, search_messages

NOW = 1_700_000_000_000_000
Form = Literal["NFC", "NFD"]
pytestmark = pytest.mark.contract("9.1")


def say(tx: Tx, session: str, texts: Sequence[str]) -> None:
    append_messages(tx, "w", session, [draft(text, "ann") for text in texts], NOW)


def search(tx: Tx, query: str, limit: int = 10, **filters: str) -> list[str]:
    return [row.content for row in search_messages(tx, new_index(), SearchArea(1), question(query), filters, limit)]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_word_is_found_however_its_accents_are_written(tx: Tx, form: Form) -> None:
    say(
        tx, "talk", ["Nothing of the kind.", unicodedata.normalize(form, "She sent her résumé."), "Re: sume, re: sume."]
    )
    for asked in get_args(Form):
        assert "sent her" in search(tx, unicodedata.normalize(asked, "résumé"), 1)[0]
    assert "sent her" in search(tx, "RESUME", 1)[0]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("हिन्दी", "हिन्दी मेरी भाषा है"),
        ("বাংলা", "আমি বাংলা বলি"),
        ("தமிழ்", "நான் தமிழ் பேசுகிறேன்"),
        ("İstanbul", "Istanbul'a gittim"),
    ],
)
def test_word_with_vowel_signs_is_one_word(tx: Tx, query: str, text: str) -> None:
    others = ["दुकान हद न बंद है", "হল বল আল", "தழ மப", "It is stanbul that I never wrote."]
    say(tx, "talk", [text, *others])
    assert search(tx, query, 1) == [text]


@pytest.mark.parametrize("number", range(1, 61))
def test_a_question_may_have_any_number_of_words(tx: Tx, number: int) -> None:
    words = [f"{first}{second}word" for first in "bdfgklmn" for second in "aeioubcd"]
    say(tx, "talk", [" ".join(words), "The printer is out of paper."])
    assert search(tx, " ".join(words[:number]), 1) == [" ".join(words)]


def test_long_message_does_not_crowd_out_the_others(tx: Tx) -> None:
    long = "We talked about the honey that our bees make in summer. " * 400
    say(tx, "files", [long])
    say(tx, "talk", [f"The printer is out of paper, floor {number}." for number in range(5)])
    assert len(search(tx, "apiculture", 5)) == 5
    found = search(tx, "apiculture", 5, session_id="talk")
    assert len(found) == 5


def test_old_message_with_all_query_words_is_found_although_each_is_frequent(tx: Tx) -> None:
    wanted = "Yesterday we went to town and there was somebody who wanted to sell me a car, in blue of all things."
    say(tx, "talk", [wanted])
    many = [f"{colour} thing {number}" for colour in ("blue", "car") for number in range(3100)]
    for start in range(0, len(many), 100):
        say(tx, "noise", many[start : start + 100])
    assert wanted in search(tx, "blue car", 2)


def test_frequent_word_counts_where_a_filter_leaves_none_of_the_rare_ones(tx: Tx) -> None:
    for _ in range(31):
        say(tx, "noise", ["Coffee again, zanzibar said."] + ["Coffee again."] * 99)
    say(
        tx,
        "talk",
        [
            "Espresso from Tanzania.",
            "Tea from Mombasa and Kenya.",
            "He told the joiner that the coffee of 1893 should be put away with the nails.",
        ],
    )
    assert "1893" in search(tx, "zanzibar coffee", 1, session_id="talk")[0]


def test_copy_of_a_session_is_found_by_its_words_and_its_meaning(tx: Tx) -> None:
    long = "We talked about the weather. " * 60 + "The zeppelin landed in Malta. " * 20
    say(tx, "talk", ["I keep bees.", long, "Not copied."])
    second = tx.exec_driver_sql("SELECT public_id FROM messages WHERE seq = 2").scalar_one()
    copying = begin_clone(tx, "w", "talk", second, NOW)
    assert copy_part(tx, copying, 0) == copying.last
    copy = finish_clone(tx, copying, NOW)
    place = SearchArea(1, (copy.id,))
    assert [row.content for row in list_messages(tx, "w", copy.name, None, PageRequest()).rows] == [
        "I keep bees.",
        long,
    ]
    found = search_messages(tx, new_index(), place, question("zeppelin"), None, 5)
    assert [row.id for row in found] == [5, 4]
    rows = new_index().memory_indexes.load(tx, 1).rows
    assert rows.ids[rows.sessions == copy.id].tolist() == [4, 5, 5, 5]
    tx.exec_driver_sql("INSERT INTO message_index (message_index, rank) VALUES ('integrity-check', 1)")
    say(tx, "talk", ["After."])
    assert tx.exec_driver_sql("SELECT max(id), count(*) FROM messages").one() == (6, 6)


def test_one_rare_word_counts_more_than_a_common_one(tx: Tx) -> None:
    say(tx, "talk", ["The kiln broke.", *(f"Lunch number {number}." for number in range(50))])
    assert search(tx, "lunch kiln", 1) == ["The kiln broke."]


def test_what_was_said_twice_comes_again_only_when_nothing_else_is_left(tx: Tx) -> None:
    say(tx, "talk", ["The kiln broke.", "the kiln broke!", "We need a new kiln.", "The kiln broke."])
    assert search(tx, "kiln broke", 2)[1] == "We need a new kiln."
    assert len(search(tx, "kiln broke", 4)) == 4


def test_number_that_stands_once_comes_first_whatever_else_is_said(tx: Tx) -> None:
    say(tx, "talk", [f"The parcel with the order and the invoice for garden {word}." for word in ("a", "b", "c") * 30])
    say(tx, "other", ["48213 it was."])
    assert search(tx, "the parcel with order 48213 and the invoice for the garden", 1) == ["48213 it was."]


def test_long_answer_does_not_drown_what_a_person_said(tx: Tx) -> None:
    essay = "Moving house is a project. " + "There are many things to consider about schools, taxes and moving. " * 30
    say(
        tx, "talk", ["We are moving to Ghent in June.", essay, essay + "Think of the house.", essay + "Think of Ghent."]
    )
    assert search(tx, "where are we moving", 1) == ["We are moving to Ghent in June."]


def test_what_the_one_who_is_named_said_of_themselves_comes_first(tx: Tx) -> None:
    append_messages(tx, "w", "talk", [draft("I play the cello.", "ben"), draft("I play the cello.", "ann")], NOW)
    found = search_messages(tx, new_index(), SearchArea(1), question("What does Ben play?"), None, 2)
    assert [row.peer for row in found] == ["ben", "ann"]


def test_answer_right_after_the_question_is_found_by_the_words_of_the_question(tx: Tx) -> None:
    say(tx, "talk", ["Which instrument do you play in the orchestra?", "The cello, since school.", "Lovely weather."])
    assert search(tx, "instrument orchestra", 2)[1] == "The cello, since school."


@pytest.mark.contract("9.16")
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("What did she paint in October 2023?", "Last month she painted a heron."),
        ("Was hat sie im Oktober 2023 gemalt?", "Letzten Monat hat sie einen Reiher gemalt."),
        ("Qu'a-t-elle peint en octobre 2023 ?", "Le mois dernier, elle a peint un héron."),
    ],
)
def test_question_with_a_month_finds_what_happened_in_it(tx: Tx, asked: str, told: str) -> None:
    others = ["She painted a swan.", "Sie hat einen Schwan gemalt.", "Elle a peint un cygne en avril."]
    say(tx, "talk", [told, *others])
    assert search(tx, asked, 1) == [told]


def test_what_only_asks_or_lacks_the_value_asked_for_comes_later(tx: Tx) -> None:
    said = ["how can I support my sister from here", "My sister is a lawyer."]
    say(tx, "talk", [*said, "Mother's day, I got a bracelet", "My mother Irene is 71."])
    assert search(tx, "What does my sister do?")[:2] == said[::-1]
    assert search(tx, "How old is my mother?")[0] == "My mother Irene is 71."
