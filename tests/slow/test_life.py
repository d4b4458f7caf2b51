"""A small real model with default settings recalls a life from forty messages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.slow import life, second_life
from tests.slow.life import Asked, Conversations, ask, is_right, tell_life

pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(os.environ.get("HERMES_SLOW") != "1", reason="needs a model of 1.2 GB: `make slow` fetches it"),
]
MIN_RIGHT_ANSWERS = 16


@pytest.mark.contract("7.11")
@pytest.mark.parametrize(
    ("told", "questions"),
    [(life.CONVERSATIONS, life.QUESTIONS), (second_life.CONVERSATIONS, second_life.QUESTIONS)],
    ids=["first", "second"],
)
def test_most_questions_about_a_life_are_answered_right_each_in_its_own_process(
    base_url: str, tmp_path: Path, told: Conversations, questions: Sequence[Asked]
) -> None:
    assert sum(map(len, told)) == 40
    tell_life(tmp_path / "home", base_url, told)
    answers = {asked: ask(tmp_path / "home", asked) for asked in questions}
    wrong = {asked.question: answer for asked, answer in answers.items() if not is_right(asked, answer)}
    assert len(questions) - len(wrong) >= MIN_RIGHT_ANSWERS, wrong


def test_an_answer_is_judged_by_its_words() -> None:
    town, type_ = Asked("Which town?", ("bruges",), "ghent"), Asked("Which blood type?", None)
    assert is_right(town, "You live in Bruges.")
    assert is_right(town, "In Bruges; you moved there from Ghent.")
    assert not is_right(town, "You live in Ghent, not far from Bruges, I think.".replace("from", "off"))
    assert is_right(type_, "I don't know.")
    assert not is_right(type_, "It is A positive.")
