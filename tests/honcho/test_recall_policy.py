"""When Honcho is asked, with which reasoning level, and in which words."""

from __future__ import annotations

import pytest

from hermes.honcho.keys import LEVELS
from hermes.honcho.recall_policy import (
    COLD,
    WARM,
    DialecticPlan,
    choose_levels,
    is_due,
    is_strong,
    is_trivial,
    raise_level,
    word_pass,
)
from hermes.memory.provider import Question, Said, Speaker
from tests.honcho.configuring import Machine

SHORT, LONG, LONGER = 119, 120, 400


def question(*texts: str) -> Question:
    return Question(tuple(Said(text, Speaker(is_owner=True)) for text in texts), 1, 0.0)


@pytest.mark.contract("7.4")
@pytest.mark.parametrize(
    ("depth", "expected"), [(1, ("medium",)), (2, ("minimal", "medium")), (3, ("minimal", "medium", "low"))]
)
def test_each_pass_has_its_share_of_the_base_level(depth: int, expected: tuple[str, ...]) -> None:
    assert choose_levels(DialecticPlan(depth, "medium"), SHORT) == expected


@pytest.mark.contract("7.4")
@pytest.mark.parametrize(
    ("base", "chars", "cap", "expected"),
    [
        ("low", SHORT, "high", "low"),
        ("low", LONG, "high", "medium"),
        ("low", LONGER - 1, "high", "medium"),
        ("low", LONGER, "high", "high"),
        ("low", LONGER, "medium", "medium"),
        ("low", LONGER, "low", "low"),
        ("medium", LONGER, "high", "high"),
        ("high", LONGER, "max", "max"),
        ("max", LONGER, "max", "max"),
        ("max", LONGER, "low", "max"),
        ("high", LONG, "minimal", "high"),
    ],
)
def test_long_questions_raise_the_base_up_to_the_cap_and_a_base_above_it_stays(
    base: str, chars: int, cap: str, expected: str
) -> None:
    assert raise_level(base, chars, cap) == expected
    assert choose_levels(DialecticPlan(3, base, cap=cap), chars) == ("minimal", expected, "low")
    assert choose_levels(DialecticPlan(1, base, heuristic=False, cap=cap), chars) == (base,)


def test_a_level_is_never_below_its_base_and_only_a_high_base_is_above_the_cap() -> None:
    for base in LEVELS:
        for cap in LEVELS:
            for chars in (0, SHORT, LONG, LONGER, 100_000):
                found = LEVELS.index(raise_level(base, chars, cap))
                assert LEVELS.index(base) <= found <= max(LEVELS.index(base), LEVELS.index(cap))


@pytest.mark.contract("7.4")
@pytest.mark.parametrize(
    ("depth", "given", "expected"),
    [
        (1, ("max",), ("max",)),
        (2, ("high",), ("high", "high")),
        (3, ("max",), ("max", "high", "low")),
        (3, ("low", "low"), ("low", "low", "low")),
        (2, ("low", "medium", "max"), ("low", "medium")),
        (3, (), ("minimal", "high", "low")),
    ],
)
def test_given_levels_are_not_touched_and_missing_ones_are_filled_up(
    depth: int, given: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert choose_levels(DialecticPlan(depth, "low", given), LONGER) == expected


def test_the_configuration_says_how_the_person_is_asked_about(machine: Machine) -> None:
    machine.write({"dialecticDepth": 9, "dialecticDepthLevels": ["max"], "reasoningHeuristic": False})
    found = DialecticPlan.of(machine.load())
    assert (found.depth, found.explicit, found.heuristic, found.cap) == (3, ("max",), False, "high")
    assert DialecticPlan.of(Machine(machine.folder / "other").load()) == DialecticPlan()


@pytest.mark.parametrize(
    ("answer", "strong"),
    [
        ("x" * 300, False),
        ("x" * 301, True),
        ("- " + "x" * 99, True),
        ("- " + "x" * 98, False),
        ("words " * 20, False),
        ("# Title\n" + "x" * 100, True),
        ("One:\n1. " + "x" * 100, True),
        ("", False),
    ],
)
def test_a_long_answer_or_a_structured_one_is_strong(answer: str, strong: bool) -> None:
    assert is_strong(answer) is strong


@pytest.mark.contract("7.4")
def test_first_pass_asks_cold_or_warm_and_later_passes_quote_the_answers() -> None:
    assert word_pass([], warm=False) == COLD
    assert word_pass([], warm=True) == WARM
    assert "likes figs" in word_pass(["likes figs"], warm=True)
    both = word_pass(["likes figs", "hates figs"], warm=False)
    assert "likes figs" in both
    assert "hates figs" in both


def test_the_two_questions_are_worded_as_stock_hermes_words_them() -> None:
    assert COLD.startswith("Who is this person? What are their preferences, goals, and working style? Focus on facts")
    assert COLD.endswith("Focus on facts that would help an AI assistant be immediately useful.")
    assert WARM.startswith("Given what's been discussed in this session so far, what context about this user is most")
    assert WARM.endswith("to the current conversation? Prioritize active context over biographical facts.")


@pytest.mark.parametrize("cadence", [1, 2, 3, 7])
def test_something_is_fetched_every_so_many_turns(cadence: int) -> None:
    fetched: list[int] = []
    for turn in range(1, 21):
        if is_due(turn, fetched[-1] if fetched else None, cadence):
            fetched.append(turn)
    assert fetched == list(range(1, 21, cadence))


@pytest.mark.contract("7.5")
@pytest.mark.parametrize(
    ("text", "trivial"),
    [
        ("ok", True),
        ("Thanks!", True),
        ("yes, yes", True),
        ("Thank you.", True),
        ("👍", True),
        ("", True),
        ("/compress the plan", True),
        ("/" + "x" * 500, True),
        ("hi", False),
        ("ok, and my sister?", False),
        ("no milk please", False),
        ("无", False),
        ("ok " * 100, False),
        ("?" * 200, False),
    ],
)
def test_a_nod_or_a_command_is_trivial(text: str, trivial: bool) -> None:
    assert is_trivial(question(text)) is trivial


def test_messages_that_came_together_are_trivial_only_when_all_are() -> None:
    assert is_trivial(question("ok", "thanks"))
    assert not is_trivial(question("ok", "where do I live?"))
