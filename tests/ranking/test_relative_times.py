"""Relative times, resolved against the day of their text."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bench
from bench.relative_times import ODD, ODD_CHARS, read_label
from hermes.ranking.dates import find_dates
from hermes.ranking.relative_times import MAX_PHRASES, resolve, write_out

LABELLED = sorted(Path(bench.__file__).parent.glob("relative_times_*.jsonl"))
MONDAY = date(2023, 5, 8)
pytestmark = pytest.mark.contract("9.16")


@pytest.mark.parametrize("language", ["en", "de", "es", "fr", "zh"])
def test_every_labelled_sentence_is_understood(language: str) -> None:
    lines = [json.loads(line) for path in LABELLED for line in path.read_text(encoding="utf-8").splitlines()]
    own = [line for line in lines if line["language"] == language]
    assert len(own) > 40
    for line in own:
        text, labels = read_label(line["text"])
        found = resolve(text, datetime.fromisoformat(line["said_at"]))
        assert [each.written for each in found] == [written for *_, written in labels], line["text"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("I saw him yesterday.", "I saw him yesterday. (7 May 2023)"),
        ("Last week's show was fun.", "Last week's show was fun. (week of 1 May 2023)"),
        ("It rained last weekend.", "It rained last weekend. (weekend of 6 May 2023)"),
        (
            "We skied last winter, three years ago too.",
            "We skied last winter, three years ago too. (last winter: winter 2022/23; three years ago: 2020)",
        ),
        ("I met her in May last year.", "I met her in May last year. (May 2022)"),
        ("We flew on 29 February and 31 June.", "We flew on 29 February and 31 June."),
        ("We will fly on 29 February.", "We will fly on 29 February. (29 February 2024)"),
        ("I was there on Friday last week.", "I was there on Friday last week. (5 May 2023)"),
        ("In 2019 I was born again, on Friday, 5 May 2017.", "In 2019 I was born again, on Friday, 5 May 2017."),
        ("I left yesterday!! He is 3.5 m tall", "I left yesterday!! (7 May 2023) He is 3.5 m tall"),
        ("I left yesterday\nand slept", "I left yesterday (7 May 2023)\nand slept"),
        ("我昨天见了他。很好", "我昨天见了他。 (7 May 2023)很好"),
        ("Nothing of the kind.", "Nothing of the kind."),
        ("", ""),
    ],
)
def test_meaning_stands_in_brackets_behind_the_sentence(text: str, shown: str) -> None:
    assert write_out(text, MONDAY) == shown


def test_days_of_a_phrase_are_those_of_its_words() -> None:
    week, since = resolve("I was ill last week and have been at home for two months.", MONDAY)
    assert (week.first, week.last, week.is_span) == (date(2023, 5, 1), date(2023, 5, 7), False)
    assert (since.first, since.last, since.is_span) == (date(2023, 3, 1), MONDAY, True)
    assert week.start == len("I was ill ")


def test_day_is_that_of_the_clock_that_the_moment_carries() -> None:
    moment = datetime(2023, 5, 8, 1, 0, tzinfo=timezone(timedelta(hours=9)))
    assert [each.written for each in resolve("I saw it yesterday.", moment)] == ["7 May 2023"]
    assert [each.written for each in resolve("I saw it yesterday.", moment.astimezone(UTC))] == ["6 May 2023"]


def test_language_may_be_told() -> None:
    assert resolve("Hier!", MONDAY, "de") == []
    assert [each.written for each in resolve("Hier!", MONDAY, "fr")] == ["7 May 2023"]
    assert resolve("Ieri!", MONDAY, "it") == []


@pytest.mark.timeout(30)
@pytest.mark.parametrize("odd", ODD)
def test_long_odd_text_is_read_in_one_pass(odd: str) -> None:
    assert len(resolve((odd * ODD_CHARS)[:ODD_CHARS], MONDAY)) <= MAX_PHRASES


def test_number_of_phrases_is_bounded() -> None:
    assert len(resolve("I left yesterday. " * 200, MONDAY)) == MAX_PHRASES


WORDS = st.sampled_from(
    """
    last next this in on for ago 3 31 29 999999 years weeks days May June February Friday weekend winter Christmas
    the of 2019 since was will . , vor seit Tagen hace años il_y_a dans mois dernier 上 周五 三 年 前 月 31日
    """.split()  # noqa: SIM905 - one word a line would be a page
)


@given(st.lists(st.one_of(WORDS, st.text(max_size=5)), max_size=20).map(" ".join), st.dates())
def test_any_text_of_any_day_gives_phrases_in_order(text: str, day: date) -> None:
    for language in (None, "en", "de", "es", "fr", "zh"):
        end = 0
        for found in resolve(text, day, language):
            assert end <= found.start < found.end <= len(text)
            assert found.first <= found.last
            end = found.end


@pytest.mark.parametrize(
    ("question", "fits"),
    [
        ("What did she do in April 2023?", [0, 0, 1, 0, 0]),
        ("What did she do in May 2023?", [1, 1, 0, 0, 0]),
        ("What did she do on 3 May 2023?", [2, 1, 0, 0, 0]),
        ("What did she do in 2022?", [0, 0, 0, 0.5, 0]),
        ("What did she do in July 2022?", [0, 0, 0, 0, 0]),
    ],
)
def test_question_with_a_date_fits_what_happened_then(question: str, fits: list[float]) -> None:
    said = ["She ran last week.", "She ran yesterday.", "She ran last month.", "She ran last year.", "She ran."]
    assert [find_dates(question).fit_times(resolve(text, MONDAY)) for text in said] == fits


def test_planet_is_no_month_and_french_months_are() -> None:
    assert not find_dates("Is there life on Mars?")
    assert find_dates("Qu'a-t-elle fait en mars ?").months == {3}
    assert find_dates("le 5 août").days == {5}
