"""Markdown as rows: nothing is lost, rows fit, and the result does not depend on how the text is split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.cli.markdown import Markdown
from hermes.cli.rows import columns_of
from tests.cli.markdown_rows import plain, rows_of

PIECES = (
    *("word ", "more", " ", "\n", "\n\n", "**", "*", "_", "`", "```\n", "# ", "- ", "1. ", "> ", "\\", "漢字", "é"),
    *("[a](http://b.c)", "~~", "| a | b |\n", "|---|--:|\n", "| x | **y** |\n", "|", "---\n", "    "),
)
TEXT = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@pytest.mark.contract("10.20")
@given(TEXT, st.integers(20, 60), st.integers(1, 9), st.booleans())
def test_rows_are_the_same_however_the_text_was_cut(text: str, columns: int, piece: int, colored: bool) -> None:
    whole = rows_of(text, columns=columns, colored=colored)
    assert rows_of(text, columns=columns, colored=colored, piece=piece) == whole


@given(TEXT, st.integers(20, 60))
def test_every_word_is_shown(text: str, columns: int) -> None:
    shown = "".join(plain(rows_of(text, columns=columns)))
    for word in ("word", "more", "漢", "http://b.c"):
        assert shown.count(word) >= text.count(word), shown


@given(TEXT)
def test_without_colours_nothing_is_painted_and_no_sign_of_words_is_lost(text: str) -> None:
    rows = rows_of(text, colored=False)
    assert plain(rows) == rows
    assert "".join(rows).count("*") == text.count("*")


@pytest.mark.contract("10.20")
def test_a_reply_shows_its_first_formatted_row_before_the_third_line_has_come() -> None:
    markdown = Markdown(lambda: 80, colored=True)
    assert markdown.feed("# Sorting\n") == ["\x1b[1;4mSorting\x1b[0m"]
    assert markdown.feed("It takes **memory** and ") == []
    assert markdown.growing() == ["It takes \x1b[1mmemory\x1b[0m and"]


def test_a_long_line_is_shown_row_by_row_before_it_ends() -> None:
    markdown = Markdown(lambda: 20, colored=True)
    rows = markdown.feed("Some words, a **bold phrase that goes over the edge** and more")
    assert plain(rows) == ["Some words, a bold", "phrase that goes"]
    assert rows[1] == "\x1b[1mphrase that goes\x1b[0m"


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("a **bold** word", "a \x1b[1mbold\x1b[0m word"),
        ("an *italic* or _italic_ word", "an \x1b[3mitalic\x1b[0m or \x1b[3mitalic\x1b[0m word"),
        ("a `code * span`", "a \x1b[36mcode * span\x1b[0m"),
        ("[text](http://a.b)", "\x1b[4mtext\x1b[0m\x1b[2m (http://a.b)\x1b[0m"),
        ("<http://a.b>", "\x1b[4mhttp://a.b\x1b[0m"),
        ("- item", "• item"),
        ("> quoted", "\x1b[2m│ \x1b[0mquoted"),
        ("*args and **kwargs, 2 * 3 * 4", "*args and **kwargs, 2 * 3 * 4"),
        ("snake_case_name [1] \\*kept\\*", "snake_case_name [1] *kept*"),
    ],
)
def test_what_is_marked_is_painted_and_what_only_looks_so_is_not(text: str, row: str) -> None:
    assert rows_of(text) == [row]


def test_rows_of_an_item_and_a_quote_stand_below_each_other() -> None:
    rows = plain(rows_of("- words that do not fit\n  1. nor do these here\n> or these words", columns=18))
    assert rows == ["• words that do", "  not fit", "  1. nor do these", "     here", "│ or these words"]


@pytest.mark.contract("10.20")
def test_code_can_be_copied_and_its_signs_mean_nothing() -> None:
    code = "def f(*args):\n    return '**x**' | 1\n\n| a | b |"
    rows = plain(rows_of(f"  ```python\n  {code.replace(chr(10), chr(10) + '  ')}\n  ```\nafter *it*", columns=20))
    assert rows == ["```python", *code.split("\n"), "```", "after it"]


TABLE = """| name | cost | what it is good for |
|:-----|-----:|---------------------|
| merge sort | 1,234 | stable and **external**, as databases have it every day |
| 漢字 | 2 | `x` |
"""


@pytest.mark.contract("10.20")
def test_a_table_is_aligned_and_folded_to_the_width() -> None:
    assert plain(rows_of(TABLE, columns=60)) == [
        "name         cost  what it is good for",
        "──────────  ─────  ─────────────────────────────────────────",
        "merge sort  1,234  stable and external, as databases have it",
        "                   every day",
        "漢字            2  x",
    ]


@given(st.integers(8, 100), st.lists(st.text("ab 漢", max_size=30), min_size=1, max_size=12))
def test_a_table_is_never_wider_than_the_window(columns: int, cells: list[str]) -> None:
    text = "| one | two | three |\n|---|---|---|\n" + "".join(f"| {cell} | x | {cell[::-1]} |\n" for cell in cells)
    rows = plain(rows_of(text, columns=columns))
    assert max(columns_of(row) for row in rows) <= columns
    assert "".join(rows).count("a") == sum(cell.count("a") for cell in cells) * 2


def test_a_long_table_is_finished_row_by_row() -> None:
    markdown = Markdown(lambda: 40, colored=False)
    markdown.feed("| a | b |\n|---|---|\n" + "| word | more |\n" * 20)
    assert markdown.growing() == []
    assert markdown.feed("| the last | one here |\n") == ["the   one", "last  here"]


def test_a_line_that_only_begins_like_a_table_is_a_line() -> None:
    assert rows_of("| or\n| not\nwords", colored=False) == ["| or", "| not", "words"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", [0, 40])
@pytest.mark.parametrize(
    "text",
    ["x " + "`" * 1990, "x " + "`" * 1000 + "y" + "`" * 900, ">" * 3000 + "x", "> " * 1500 + "x", " " * 20_000 + "x"],
    ids=["ticks", "uneven ticks", "quotes", "spaced quotes", "blanks"],
)
def test_what_a_model_that_repeats_itself_says_keeps_nobody_waiting(text: str, piece: int) -> None:
    shown = "".join(plain(rows_of(text, piece=piece)))
    assert shown.count("x") == 1
    assert shown.count("`") == text.count("`")


@pytest.mark.timeout(60)
def test_an_endless_line_full_of_signs_is_shown_whole() -> None:
    text = "**a*_`[" * 20_000
    assert "".join(plain(rows_of(text, piece=5000))).replace(" ", "").count("a") == 20_000
