"""Composition of one request's recall: within its budget, cut at words, without duplicates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.fence import OVERHEAD_CHARS, fence
from hermes.honcho.injection import (
    DEFAULT_TOKENS,
    MAX_INJECTED_CHARS,
    SUPPLEMENT,
    Section,
    budget_chars,
    compose,
    cut_at_word,
)
from hermes.memory.offered import MAX_RECALL_CHARS

LAYERS = ("summary", "user representation", "user card", "ai representation", "ai card", SUPPLEMENT)
TEXTS = st.text(st.sampled_from("ab c\n.é-漢字かสวัด\u0301👩\u200d🔬#:[]") | st.characters(), max_size=400)


def section(text: str, layer: str = "summary") -> Section:
    return Section(layer, layer.title(), text, 1.0)


def joined(texts: dict[str, str], limit: int) -> str:
    parts = compose([section(text, layer) for layer, text in texts.items()], limit)
    return "\n\n".join(part.text for part in parts if part.text)


@pytest.mark.contract("7.3")
@given(st.lists(st.tuples(st.sampled_from(LAYERS), TEXTS), max_size=6), st.integers(0, 600))
def test_all_parts_together_never_exceed_the_budget(given_: list[tuple[str, str]], limit: int) -> None:
    parts = compose([section(text, layer) for layer, text in given_], limit)
    assert len("\n\n".join(part.text for part in parts if part.text)) <= limit
    assert all(part.tokens * 4 >= len(part.text) > (part.tokens - 1) * 4 for part in parts if part.text)


@pytest.mark.contract("7.3")
@given(TEXTS, st.integers(0, 400))
def test_a_cut_keeps_the_beginning_and_splits_no_word(text: str, limit: int) -> None:
    kept = cut_at_word(text, limit)
    assert text.startswith(kept)
    assert len(kept) <= limit or kept == text
    if kept and kept != text:
        before, after = kept[-1], text[len(kept)]
        assert before.isspace() or after.isspace() or not (before.isascii() and after.isascii())


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("one two three", 9, "one two"),
        ("one two three", 7, "one two"),
        ("one two three", 8, "one two"),
        ("one", 3, "one"),
        ("unbreakable", 5, ""),
        ("don't stop", 4, ""),
        ("漢字漢字", 2, "漢字"),
        ("e\u0301e\u0301", 1, ""),
        ("👩\u200d🔬👩\u200d🔬 x", 4, ""),
    ],
)
def test_words_and_characters_stay_whole(text: str, limit: int, expected: str) -> None:
    assert cut_at_word(text, limit) == expected


def test_what_is_cut_is_counted() -> None:
    [part] = compose([section("one two three four")], len("## Summary\n") + 9)
    assert part.text == "## Summary\none two"
    assert part.cut == len("one two three four") - len("one two")


def test_a_cut_leaves_no_heading_that_nothing_stands_under() -> None:
    [part] = compose(
        [section("## Explicit Observations\n\none two")], len("## Summary\n## Explicit Observations\n\non")
    )
    assert (part.text, part.cut) == ("", len("## Explicit Observations\n\none two"))


def test_a_part_without_room_says_that_all_of_it_is_cut() -> None:
    first, second = compose([section("one two"), section("three", "ai card")], len("## Summary\none two"))
    assert (first.cut, second.text, second.cut) == (0, "", 5)


@pytest.mark.contract("7.3")
def test_the_supplement_keeps_room_when_the_base_is_long() -> None:
    text = joined({"user representation": "fact " * 1000, SUPPLEMENT: "She moves to Ghent in May."}, 400)
    assert text.endswith("She moves to Ghent in May.")
    assert len(text) <= 400
    only = joined({"user representation": "fact " * 10, SUPPLEMENT: "word " * 1000}, 400)
    assert only.count("fact") == 10


@pytest.mark.contract("7.3")
def test_the_same_fact_is_not_injected_twice() -> None:
    text = joined(
        {
            "summary": "Ann said: my cat is called Miso.",
            "user representation": "## Explicit Observations\n\n[2026-01-02 03:04:05] ann: I like figs.",
            "user card": "ann: I like figs\nLives in Ghent",
            SUPPLEMENT: "Concluded:\n- [2026-01-02 03:04:05] ann: I like FIGS!\n\nSaid:\n- ann: I work nights",
        },
        2000,
    )
    assert text.lower().count("i like figs") == 1
    assert "Concluded:" not in text
    assert "Said:\n- ann: I work nights" in text
    assert "Lives in Ghent" in text


def test_what_a_line_says_is_not_said_again_under_the_persons_name() -> None:
    text = (
        "[2026-11-16 13:29:38] Mina is allergic.\n[2026-11-16 13:29:43] root: Mina is allergic.\nroot: Mina is seven."
    )
    assert joined({"user representation": text}, 1000).splitlines()[1:] == [
        "[2026-11-16 13:29:38] Mina is allergic.",
        "root: Mina is seven.",
    ]


def test_the_same_words_of_two_people_are_two_facts() -> None:
    text = joined({"user representation": "ann: I like figs\nbob: I like figs\nbob: I like figs"}, 2000)
    assert text.count("I like figs") == 2


@pytest.mark.contract("7.3")
def test_what_held_before_a_fact_stays_under_that_fact() -> None:
    moved = "[2026-11-19 17:02:30] ann: I moved to Vienna.\n   until 19 November 2026: ann: I live in Graz."
    known = f"## Said\n\n[2026-11-19 17:01:49] ann: My dentist is Dr Moser.\n{moved}"
    assert moved in joined({"user card": "ann: I moved to Vienna.", "user representation": known}, 2000)
    assert moved in joined({"user representation": known}, len(moved) + 30)
    said = "ann: I moved to Vienna.\nuntil 19 November 2026: ann: I live in Graz."
    assert "Vienna" not in joined({"user card": said, "user representation": known}, 2000).partition("Dr Moser")[2]


def test_a_section_that_says_nothing_new_is_left_out() -> None:
    assert len(compose([section("I like figs"), section("# Facts\n\n- I like figs", "user card")], 2000)) == 1


@pytest.mark.contract("7.3")
@given(st.integers(1, 8000))
def test_block_with_its_note_has_four_characters_a_token_at_most(tokens: int) -> None:
    """The budget is used up to the last character, if it has room for more than the note."""
    room = budget_chars(tokens)
    block = fence("x" * room).removeprefix("<memory-context>").removesuffix("</memory-context>")
    assert len(block) == (min(tokens * 4, MAX_INJECTED_CHARS + OVERHEAD_CHARS) if room else 0)


def test_default_budget_is_a_thousand_tokens_and_the_largest_what_the_host_takes() -> None:
    assert budget_chars(None) == budget_chars(DEFAULT_TOKENS) == 4000 - OVERHEAD_CHARS
    assert budget_chars(100_000) == MAX_INJECTED_CHARS == MAX_RECALL_CHARS


@pytest.mark.contract("7.3")
def test_a_section_of_any_size_is_put_together_and_what_was_not_read_counts_as_cut() -> None:
    lines = [f"fact {number:x}" for number in range(300_000)]  # comparing each with all before it takes minutes
    text = "\n".join(lines)
    [part] = compose([section(text)], 8000)
    assert len(part.text) <= 8000
    assert part.text.startswith("## Summary\nfact 0\nfact 1\n")
    assert part.cut + len(part.text) == pytest.approx(len(text), abs=20)


def test_a_line_that_is_repeated_without_end_leaves_room_for_what_follows() -> None:
    text = "\n".join(["She likes figs."] * 500 + ["She has a cat."])
    assert joined({"summary": text}, 8000) == "## Summary\nShe likes figs.\nShe has a cat."
