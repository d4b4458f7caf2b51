"""Markdown for Telegram, and long texts in pieces, for any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.outbound import count_units, cut_text, split_text
from hermes.gateway.platforms.text import render
from tests.gateway.bot_api import units

MARKS = st.sampled_from(
    ["*", "**", "_", "`", "```", "\n", "\n\n", "# ", "- ", "> ", "|", "|-|", "[a](http://b)", "~~", "\\", "&lt;", "<b>"]
)
WORDS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
MARKDOWN = st.lists(st.one_of(MARKS, WORDS, st.sampled_from(["👩‍👩‍👧", "x", " ", "é"])), max_size=40).map("".join)


@given(MARKDOWN)
def test_any_text_renders_with_spans_inside_it(text: str) -> None:
    made = render(text)
    for span in made.spans:
        assert 0 <= span.start < span.end <= len(made.text)


@given(MARKDOWN)
def test_no_word_is_lost_by_formatting(text: str) -> None:
    words = [f"w{number}w" for number in range(3)]
    shown = render(f"{words[0]} {text}\n\n{words[1]}\n\n{text}\n\n{words[2]}").text
    assert all(word in shown for word in words)


@pytest.mark.parametrize(
    ("markdown", "text", "spans"),
    [
        ("a **b** c", "a b c", [("bold", "b", "")]),
        ("snake_case_name and 2*3*4", "snake_case_name and 2*3*4", []),
        ("`2*3*4`", "2*3*4", [("code", "2*3*4", "")]),
        ("## Title", "Title", [("bold", "Title", "")]),
        ("- one\n  - two", "• one\n  • two", []),
        ("7. seven", "7. seven", []),
        ("```py\nx = '*'\n```\nend", "x = '*'\nend", [("pre", "x = '*'", "py")]),
        ("```\nstill coming", "still coming", [("pre", "still coming", "")]),
        ("[here](https://a.example/b_c)", "here", [("text_link", "here", "https://a.example/b_c")]),
        ("[here](docs/a.md)", "here (docs/a.md)", []),
        ("> so\n> it is", "so\nit is", [("blockquote", "so\nit is", "")]),
        ("|a|b|\n|-|-|\n|1|2|", "|a|b|\n|-|-|\n|1|2|", [("pre", "|a|b|\n|-|-|\n|1|2|", "")]),
        ("<b>&amp; raw</b>", "<b>& raw</b>", []),
        ("5 * 3 * 2", "5 * 3 * 2", []),
    ],
)
def test_markdown_reads_well(markdown: str, text: str, spans: list[tuple[str, str, str]]) -> None:
    made = render(markdown)
    assert made.text == text
    assert [(span.kind, made.text[span.start : span.end], span.detail) for span in made.spans] == spans


@given(st.text(alphabet=st.sampled_from("ab 👍\n.é"), max_size=300), st.integers(2, 50))
def test_every_piece_fits_and_all_of_the_text_is_there(text: str, longest: int) -> None:
    pieces = split_text(text, longest)
    assert all(units(piece) <= longest and piece.strip() for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


@given(st.text(max_size=60), st.integers(0, 60))
def test_cut_text_fits_and_is_as_long_as_it_can_be(text: str, longest: int) -> None:
    cut = cut_text(text, longest)
    assert text.startswith(cut)
    assert count_units(cut) <= longest
    assert cut == text or count_units(text[: len(cut) + 1]) > longest or longest - count_units(cut) <= 1


def test_indented_line_stays_indented_after_a_cut() -> None:
    assert split_text("def f():\n    return 1", 12) == ["def f():", "    return 1"]
