"""How near the words of a question and a value of the kind it asks for stand in found lines."""

from __future__ import annotations

import numpy as np
import pytest

from hermes.ranking.admission import AskedWords, FoundLine, likelihood, read_features
from hermes.ranking.asked_values import asks_thing, find_value_places, holds_value, writes_small
from hermes.ranking.nearness import find_names, match_words, measure_nearness

NOBODY: frozenset[int] = frozenset()


def near(question: str, words: str, *texts: str) -> float:
    found = match_words(texts, words.split(), None)
    return measure_nearness(question, texts, np.ones(len(texts)), found)


def judge(question: str, words: str, *texts: str) -> float:
    asked = AskedWords(question, words.split(), 1.0, NOBODY, False)
    return likelihood(read_features(asked, [FoundLine(text, 1) for text in texts], None))


def test_a_value_beside_the_word_is_nearer_than_one_in_another_sentence() -> None:
    beside = near("How old is Ffion?", "ffion", "Ffion is 19, from Newport.")
    apart = near("How old is Ffion?", "ffion", "Ffion comes from Newport. Her nan had a harmonium. The cat is 9.")
    assert beside == 1.0
    assert apart < 0.6


def test_words_that_stand_together_are_nearer_than_words_in_two_lines() -> None:
    question, words = "Does Ruth keep bees?", "ruth keep bees"
    together = near(question, words, "Ruth keeps bees.")
    assert near(question, words, "Ruth lives in Hull.", "I keep bees.") < together


def test_a_line_without_the_value_is_not_near() -> None:
    assert near("How much did the sofa cost?", "sofa cost", "We ordered a sofa, green velvet.") == 0.0


def test_a_line_that_only_asks_is_not_near() -> None:
    texts = ["How old is Ffion, 19?"]
    assert measure_nearness("How old is Ffion?", texts, np.zeros(1), match_words(texts, ["ffion"], None)) == 0.0


def test_an_empty_line_is_not_near() -> None:
    assert near("How old is Ffion?", "ffion", "") == 0.0


def test_an_answer_is_less_likely_if_the_age_is_of_another() -> None:
    other = judge("How old is Bridget?", "bridget", 'Mum turned up, 85 today. She introduced Bridget as "the new one".')
    assert other < judge("How old is Bridget?", "bridget", "Bridget is 56, works at the library.")


def test_names_are_the_capitalised_words_inside_a_question_but_not_in_german() -> None:
    assert find_names("What car does Mick drive?", ["car", "mick", "drive"]).tolist() == [False, True, False]
    assert not find_names("Wie heißt der Hund von meiner Schwester?", ["hund", "schwester"]).any()


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Where do I live?", "just moved to leeds"),
        ("Who is my boss?", "my boss bernard is on holiday"),
        ("Which bank are we with?", "we opened an account with monzo"),
    ],
)
def test_a_writer_without_capitals_may_name_somebody(question: str, text: str) -> None:
    assert writes_small([text, "ok thanks", "i'm tired"])
    assert not holds_value(question, text)
    assert holds_value(question, text, is_small=True)


def test_a_writer_with_capitals_is_not_one_without() -> None:
    assert not writes_small(["I moved to Leeds.", "ok thanks", "Bernard is away."])


def test_who_somebody_named_is_may_be_told_without_another_name() -> None:
    assert holds_value("Who is Wojtek?", "My desk mate is Wojtek, does the fish surveys.")
    assert not holds_value("Who is my desk mate?", "The desk mate does the fish surveys.")


def test_the_places_of_values_are_those_of_the_kind_asked_for() -> None:
    assert find_value_places("How much did it cost?", "Paid 40 euros.") == [5]
    assert find_value_places("What did she say?", "She said no.") is None
    assert find_value_places("Which school does Leo go to?", "Leo goes to Hale.") == [12]


def test_the_name_of_a_thing_is_asked_for() -> None:
    assert asks_thing("Which school does Leo go to?")
    assert not asks_thing("How old is Leo?")
