"""Rows that fit: nothing is lost or wider than the window, and the result does not depend on how the text is split."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermes.cli.rows import columns_of, fold, hang, head
from hermes.cli.status import ChatStatus
from hermes.cli.table import INDENT, MIN_COLUMN_WIDTH, block, fit_widths

TEXT = st.lists(st.sampled_from(["a", "b", " ", "漢", "字", "e\u0301", "👩\u200d🚀"]), max_size=60).map("".join)
COLUMNS = st.integers(4, 30)
WORD = st.text("ab漢", min_size=1, max_size=12)


@given(TEXT, COLUMNS)
def test_no_character_is_lost_and_rows_fit_unless_a_word_does_not(text: str, columns: int) -> None:
    rows, rest = fold(text, columns)
    assert "".join([*rows, rest]).replace(" ", "") == text.replace(" ", "")
    for row in rows:
        assert columns_of(row) <= columns or " " not in row.strip(" ")


@given(TEXT, COLUMNS, st.integers(0, 80))
def test_text_that_comes_in_two_pieces_gives_the_same_rows(text: str, columns: int, cut: int) -> None:
    first, rest = fold(text[:cut], columns)
    second, rest = fold(rest + text[cut:], columns)
    # A row may end before a character that combines: what was shown already stays.
    if not any(columns_of(character) == 0 for character in text):
        assert ([*first, *second], rest) == fold(text, columns)


@given(TEXT, COLUMNS)
def test_head_fits(text: str, columns: int) -> None:
    assert columns_of(head(text, columns)) <= columns


@given(TEXT, TEXT, st.integers(20, 100))
def test_a_status_line_fits_and_memory_is_cut_last(model: str, session: str, columns: int) -> None:
    line = ChatStatus(model, session, "incognito").line(columns)
    assert columns_of(line) <= columns
    if columns >= 30:
        assert line.endswith("incognito")


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(1, 200))
def test_the_widest_columns_of_a_table_are_cut_first_and_the_first_one_never(widths: list[int], room: int) -> None:
    fitted = fit_widths(widths, room)
    if fitted is None:
        assert widths[0] + sum(min(MIN_COLUMN_WIDTH, width) for width in widths[1:]) > room
        return
    assert sum(fitted) <= room
    assert fitted[0] == widths[0]
    for before, after in zip(widths[1:], fitted[1:], strict=True):
        assert min(MIN_COLUMN_WIDTH, before) <= after <= before
        assert after == before or after >= max(fitted[1:]) - 1, "a narrower one is left alone"


@given(st.lists(st.lists(WORD, min_size=1, max_size=4).map(" ".join), min_size=2, max_size=5), st.integers(20, 60))
def test_a_block_loses_nothing_and_fits_unless_a_word_or_first_cell_is_wide(row: list[str], screen: int) -> None:
    lines = block(["name"] * len(row), row, screen)
    assert " ".join(lines).split() == " ".join(row).split()
    assert lines[0].startswith(row[0])
    longest = max(columns_of(word) for word in " ".join(row[1:]).split())
    for line in lines[1:]:
        assert columns_of(line) <= max(screen, len(INDENT) + longest)


def test_a_count_in_a_block_has_its_name() -> None:
    assert block(["id", "messages", "title"], ["a", "2", "Tea"], 60) == ["a  2 messages  Tea"]


def test_two_columns_stay_two_columns_when_they_are_folded() -> None:
    assert hang("/stop   End what is under way.", 20) == "/stop   End what is\n        under way."
    assert hang("words that are no columns", 10) == "words that are no columns"
    assert hang("    as indented as it was", 16) == "    as indented\n    as it was"
