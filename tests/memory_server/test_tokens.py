"""Token counts equal those of o200k_base, also where our algorithm takes shortcuts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rs_bpe import openai

from hermes.memory_server.tokens import count_tokens
from tests.scale import scale

reference = openai.o200k_base()
"""An independent implementation with a separate vocabulary."""
WORDS = st.sampled_from(
    ["I'll", "naïve", "  ", "\n\n", "12345678", "Straße", "東京都", "हिन्दी", "🎉👩‍💻", "x" * 90, "a/b//", "'s"]
)


@pytest.mark.stress
@pytest.mark.contract("9.1")
@given(st.lists(st.one_of(WORDS, st.text(max_size=30)), max_size=12).map("".join))
@settings(max_examples=scale(50, 5000))
def test_count_is_that_of_the_reference(text: str) -> None:
    assert count_tokens(text) == reference.count(text)


@pytest.mark.contract("9.1")
@pytest.mark.parametrize("text", ["a" * 25_000, "中" * 25_000, "qxzj" * 6_000, "\n" * 25_000, "1" * 25_000])
def test_count_of_one_endless_word_is_that_of_the_reference(text: str) -> None:
    assert count_tokens(text) == reference.count(text)
