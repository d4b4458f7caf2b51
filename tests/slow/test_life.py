"""A small real model with default settings knows a life that it was told in forty messages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.slow.life import CONVERSATIONS, QUESTIONS, Asked, ask, is_right, tell_life

pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(os.environ.get("HERMES_SLOW") != "1", reason="needs a model of 1.2 GB: `make slow` fetches it"),
]
LEAST_RIGHT = 16


@pytest.mark.contract("7.11")
def test_most_questions_about_a_life_are_answered_right_each_in_its_own_process(base_url: str, tmp_path: Path) -> None:
    assert sum(map(len, CONVERSATIONS)) == 40
    tell_life(tmp_path / "home", base_url)
    answers = {asked: ask(tmp_path / "home", asked) for asked in QUESTIONS}
    wrong = {asked.question: answer for asked, answer in answers.items() if not is_right(asked, answer)}
    assert len(QUESTIONS) - len(wrong) >= LEAST_RIGHT, wrong


def test_an_answer_is_judged_by_its_words() -> None:
    town, type_ = Asked("Which town?", ("bruges",), "ghent"), Asked("Which blood type?", None)
    assert is_right(town, "You live in Bruges.")
    assert is_right(town, "In Bruges; you moved there from Ghent.")
    assert not is_right(town, "You live in Ghent, not far from Bruges, I think.".replace("from", "off"))
    assert is_right(type_, "I don't know.")
    assert not is_right(type_, "It is A positive.")
