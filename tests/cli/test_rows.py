"""Rows that fit: nothing is lost, nothing is wider than the window, and it does not matter how the text came in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermes.cli.rows import columns_of, fold, head, tail
from hermes.cli.status import ChatStatus
from hermes.cli.table import LEAST, fit_widths

TEXT = st.lists(st.sampled_from(["a", "b", " ", "漢", "字", "e\u0301", "👩\u200d🚀"]), max_size=60).map("".join)
COLUMNS = st.integers(4, 30)


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
def test_head_and_tail_fit(text: str, columns: int) -> None:
    assert columns_of(head(text, columns)) <= columns
    assert columns_of(tail(text, columns)) <= columns
    assert text.endswith(tail(text, columns))


@given(TEXT, TEXT, st.integers(20, 100))
def test_a_status_line_fits_and_memory_is_cut_last(model: str, session: str, columns: int) -> None:
    line = ChatStatus(model, session, "incognito").line(columns)
    assert columns_of(line) <= columns
    if columns >= 30:
        assert line.endswith("incognito")


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(1, 200))
def test_columns_of_a_table_are_cut_from_the_right_and_the_first_one_never(widths: list[int], room: int) -> None:
    fitted = fit_widths(widths, room)
    assert fitted[0] == widths[0]
    assert all(min(LEAST, before) <= after <= before for before, after in zip(widths, fitted, strict=True))
    if sum(fitted) > room:
        assert fitted[1:] == [min(LEAST, width) for width in widths[1:]]
    elif fitted != widths:
        assert sum(fitted) == room
