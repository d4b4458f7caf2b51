"""A long message in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.honcho.keys import MAX_MESSAGE_CHARS
from hermes.honcho.messages import CONTINUATION_MARK, split_text

TEXTS = st.text(st.sampled_from("ab \n\t.ü👋"), max_size=400) | st.text(max_size=200)
LIMITS = st.integers(1, 120)


def bare(pieces: list[str], limit: int) -> list[str]:
    mark = CONTINUATION_MARK if limit >= 2 * len(CONTINUATION_MARK) else ""
    assert all(piece.startswith(mark) for piece in pieces[1:])
    return [pieces[0], *(piece.removeprefix(mark) for piece in pieces[1:])]


@pytest.mark.contract("6.7")
@given(TEXTS, LIMITS)
def test_pieces_are_the_text_again_and_none_is_longer_than_the_limit(text: str, limit: int) -> None:
    pieces = split_text(text, limit)
    assert "".join(bare(pieces, limit)) == text
    assert all(len(piece) <= limit for piece in pieces)
    assert len(pieces) == 1 or all(bare(pieces, limit))
    assert (len(pieces) == 1) == (len(text) <= limit)


@pytest.mark.contract("6.7")
@given(st.lists(st.text("abc", min_size=1, max_size=8), min_size=1, max_size=60), st.integers(40, 80))
def test_words_that_fit_stay_whole(words: list[str], limit: int) -> None:
    pieces = split_text(" ".join(words), limit)
    assert [word for piece in bare(pieces, limit) for word in piece.split()] == words


@pytest.mark.contract("6.7")
def test_a_text_is_parted_after_a_paragraph_before_it_is_parted_after_a_word() -> None:
    first, second = "one two " * 8, "three four " * 8
    assert split_text(f"{first}\n\n{second}", 100) == [f"{first}\n\n", f"{CONTINUATION_MARK}{second}"]
    assert split_text("word " * 30, 100)[0] == "word " * 20


@pytest.mark.contract("6.7")
def test_a_limit_above_what_servers_take_is_theirs() -> None:
    assert [len(piece) for piece in split_text("x" * (2 * MAX_MESSAGE_CHARS), 10**9)] == [
        MAX_MESSAGE_CHARS,
        MAX_MESSAGE_CHARS,
        24,
    ]
