"""Which remembered lines answer a question without a model."""

from __future__ import annotations

import pytest

from hermes.agent.offline_answers import UNKNOWN, answer, read_inquiry
from hermes.types import UNANSWERED_SCORE, RecalledLine

NOW = 1_767_225_600.0
DAY = 86_400.0


def ask(question: str, *lines: RecalledLine) -> str:
    return answer(read_inquiry(question, NOW), lines, (), NOW)


def said(text: str, days_ago: int, certainty: float | None = 0.8) -> RecalledLine:
    return RecalledLine(text, "", NOW - days_ago * DAY, certainty)


@pytest.mark.contract("9.5")
def test_near_lines_answer_nothing_where_memory_was_not_told() -> None:
    near = said("My sister Ruth lives in Hull.", 3, UNANSWERED_SCORE)
    assert ask("Does Ruth have a dog?", near) == UNKNOWN[None]
    assert "Hull" in ask("Does Ruth have a house?", said("Ruth has a house in Hull.", 3))


@pytest.mark.contract("9.5")
def test_an_outdated_home_is_listed_last_and_marked() -> None:
    first, later = said("I'm Nina and I live in Lisbon.", 30), said("I moved to Porto.", 2)
    listed = ask("What do you know about me?", first, later, said("I'm allergic to shellfish.", 9)).splitlines()
    assert listed[0].startswith("You are Nina.")
    assert "Porto" in listed[1]
    assert listed[-1].startswith("- earlier: ")
    assert "Lisbon" in listed[-1]
