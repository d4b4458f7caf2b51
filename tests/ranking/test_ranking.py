"""The pure parts of a search: words, names, dates, traits, and the sum of a message's evidence."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from hermes.ranking import traits
from hermes.ranking.dates import asks_when, find_dates
from hermes.ranking.personal import leave_out, spellings
from hermes.ranking.scoring import Evidence, score, score_finer
from hermes.ranking.traits import traits_of
from hermes.ranking.words import segment, split_words, telling_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("When did Ann's cat run?", ["ann", "cat", "run"]),
        ("Wo war der Hund im Krieg?", ["hund", "krieg"]),
        ("¿Dónde está la biblioteca?", ["está", "biblioteca"]),
        ("Did they talk of war?", ["talk", "war"]),
        ("我喜欢猫", ["我喜", "喜欢", "欢猫"]),
        ("猫", ["猫*"]),
        ("iPhone手机", ["iphone", "手机"]),
        ("what is it", ["what", "is", "it"]),
        ('"AND" NOT (x OR y*) : -', ["x", "y"]),
        ("🎉 ?!", []),
    ],
)
def test_telling_words_are_those_that_a_question_is_about(text: str, words: list[str]) -> None:
    assert telling_words(split_words(text)) == words


def test_every_character_of_a_script_without_spaces_begins_a_word_of_the_index() -> None:
    assert segment("我喜欢猫。OK").split() == ["我喜", "喜欢", "欢猫", "猫", "。OK"]
    assert segment("plain text") == "plain text"


def test_name_is_looked_for_as_people_write_ids_and_a_role_is_no_name() -> None:
    found = spellings("Where did Mary Jane's user go?")
    assert {"Mary", "mary", "Mary Jane", "mary-jane", "mary_jane"} <= {*found}
    assert "user" not in found


@pytest.mark.parametrize(
    ("text", "names", "left"),
    [
        ("Where is Ann's cat?", ["ann"], "Where is   cat?"),
        ("Where is Mary-Jane now?", ["mary", "mary_jane"], "Where is   now?"),
        ("Where is Anna?", ["ann"], "Where is Anna?"),
        ("Ann", ["ann"], "Ann"),
    ],
)
def test_names_are_left_out_unless_nothing_else_is_said(text: str, names: list[str], left: str) -> None:
    assert leave_out(text, names) == left


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("What happened on 8 May, 2023?", [2, 1, 0, 0]),
        ("on May 8th", [2, 1, 2, 0]),
        ("in May 2023", [1, 1, 0, 0]),
        ("2023-05-08", [2, 1, 0, 0]),
        ("am 8. Mai 2023", [2, 1, 0, 0]),
        ("2023年5月8日", [2, 1, 0, 0]),
        ("el 8 de mayo", [2, 1, 2, 0]),
        ("in 2024", [0, 0, 0.5, 0.5]),
    ],
)
def test_day_of_a_message_fits_the_date_that_is_asked_for(text: str, fits: list[float]) -> None:
    days = [date(2023, 5, 8), date(2023, 5, 9), date(2024, 5, 8), date(2024, 8, 5)]
    numbers = np.array([(day - date(1970, 1, 1)).days for day in days], dtype=np.int32)
    assert find_dates(text).fit(numbers).tolist() == fits


@pytest.mark.parametrize("text", ["May I have 3 of them?", "Which march was it not", "room 2045b"])
def test_what_is_no_date_is_none(text: str) -> None:
    assert not find_dates(text).years
    assert not find_dates(text).days


@pytest.mark.parametrize(
    ("text", "asks"), [("When was it?", True), ("Wann war das?", True), ("什么时候", True), ("Who was whenever", False)]
)
def test_question_for_a_time_is_known(text: str, asks: bool) -> None:
    assert asks_when(text) is asks


def test_traits_tell_questions_times_and_who_speaks_of_themselves() -> None:
    assert traits_of("Did you go yesterday? Tell.") & 15 == traits.ASKS | traits.NAMES_TIME
    assert traits_of("Where is it?") & 15 == traits.ASKS | traits.IS_QUESTION
    assert traits_of("Ich war dort.") & 15 == traits.OF_ONESELF
    assert traits_of("one two three") >> traits.LOW_FLAG_COUNT == 3
    assert traits_of("word " * 100_000) >> traits.LOW_FLAG_COUNT == traits.MAX_LENGTH_WORDS
    assert traits_of("") == 0


def plain(count: int) -> Evidence:
    """Return candidates without evidence, each in a separate session."""
    zeros, no = np.zeros(count, dtype=np.float32), np.zeros(count, dtype=bool)
    every = np.arange(count)
    return Evidence(
        zeros, zeros, zeros, zeros, zeros, no, no, no, no, no, no, zeros, np.full(count, 10), every, zeros, every + 10
    )


FIRST = np.array([True, False])


@pytest.mark.parametrize(
    ("evidence", "better"),
    [
        ({"words": FIRST * 1.0}, 0),
        ({"only_before": FIRST * 1.0}, 0),
        ({"meaning": FIRST * 1.0}, 0),
        ({"meaning_before": FIRST * 1.0}, 0),
        ({"exact": FIRST}, 0),
        ({"by_named": FIRST}, 0),
        ({"by_named": ~(FIRST & False), "oneself": FIRST}, 0),
        ({"before": np.ones(2), "after_question": FIRST}, 0),
        ({"date": FIRST * 1.0}, 0),
        ({"time": FIRST}, 0),
        ({"session_words": FIRST * 1.0}, 0),
        ({"question": FIRST}, 1),
        ({"length": np.array([400, 10])}, 1),
    ],
)
def test_each_kind_of_evidence_has_its_sign(evidence: dict[str, np.ndarray], better: int) -> None:
    scores = score(replace(plain(2), **evidence))
    assert scores[better] > scores[1 - better]


def test_length_does_not_count_among_short_messages_nor_a_session_that_is_huge() -> None:
    scores = score(replace(plain(2), length=np.array([39, 3])))
    assert scores[0] == scores[1]
    small, huge = score(replace(plain(2), session_words=np.ones(2), session_size=np.array([50, 5000])))
    assert small > 10 * huge


def test_session_of_many_good_candidates_lifts_them() -> None:
    given = replace(plain(5), session=np.array([0, 0, 0, 0, 1]), session_words=np.zeros(2), session_size=np.full(2, 20))
    scores = score(replace(given, words=np.array([0.5, 0.5, 0.5, 0, 0.5])))
    assert scores[0] > scores[4]


@pytest.mark.parametrize("words", [10, 400])
def test_second_embedder_decides_ties_and_unseen_messages_count_as_average(words: int) -> None:
    found = replace(plain(4), length=np.full(4, words))
    best = np.array([3, 1, 2])
    scores = score_finer(found, best, np.array([0.9, 0.1, np.nan]))
    assert scores[3] > scores[2] > scores[1]
    assert scores[2] == scores[0]


def test_finer_embedder_counts_less_where_messages_are_essays() -> None:
    best, close = np.arange(3), np.array([0.0, 0.6, 0.3])
    margins = []
    for words in (10, 80, 400):
        scores = score_finer(replace(plain(3), length=np.full(3, words)), best, close)
        margins.append(scores[1] - scores[0])
    assert margins[0] > margins[1] > margins[2] > 0


def test_finer_embedder_counts_more_where_nobody_is_named_unless_messages_are_essays() -> None:
    best, close = np.arange(2), np.array([0.0, 0.6])
    for words, is_more in ((10, True), (400, False)):
        found = replace(plain(2), length=np.full(2, words))
        named, unnamed = (score_finer(found, best, close, names_one=names_one)[1] for names_one in (True, False))
        assert (unnamed > named) == is_more


def test_finer_embedder_that_has_seen_too_few_of_the_best_changes_nothing() -> None:
    found = replace(plain(4), meaning=np.array([0.1, 0.4, 0.2, 0.3]))
    best = np.arange(4)
    for close in ([np.nan] * 4, [0.9, np.nan, np.nan, np.nan]):
        assert (score_finer(found, best, np.array(close)) == score(found)).all()
    assert score_finer(found, best, np.array([0.9, 0.1, np.nan, np.nan])).argmax() == 0
