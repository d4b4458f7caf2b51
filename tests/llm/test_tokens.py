"""Estimates of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.llm.tokens import ATTACHMENT_TOKENS, MESSAGE_OVERHEAD_TOKENS, estimate_request, estimate_tokens
from hermes.types import ToolSpec


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("x" * 400, 100),
        ("é" * 400, 100),
        ("漢" * 100, 100),
        ("こんにちは", 5),
        ("안녕", 2),
        ("привет", 3),
        ("漢字 and text", 2 + 3),
        ("😀", 1),
    ],
)
def test_scripts_are_weighed_by_how_they_are_cut_into_tokens(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


characters = st.text(alphabet="ab é漢あ안я😀\n", max_size=40)


@given(characters, characters)
def test_an_estimate_grows_with_the_text_and_never_beyond_its_length(one: str, two: str) -> None:
    assert estimate_tokens(one) <= estimate_tokens(one + two) <= estimate_tokens(one) + estimate_tokens(two)
    assert estimate_tokens(one) <= len(one)


def test_a_request_counts_text_tool_calls_attachments_and_schemas() -> None:
    text = {"role": "user", "content": "x" * 40}
    assert estimate_request([text]) == MESSAGE_OVERHEAD_TOKENS + 10
    assert estimate_request([text, text]) == 2 * (MESSAGE_OVERHEAD_TOKENS + 10)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    parts = {"role": "user", "content": [{"type": "text", "text": "x" * 40}, image]}
    assert estimate_request([parts]) == MESSAGE_OVERHEAD_TOKENS + 10 + ATTACHMENT_TOKENS
    call = {"id": "abcd", "type": "function", "function": {"name": "read", "arguments": "x" * 40}}
    assert (
        estimate_request([{"role": "assistant", "content": None, "tool_calls": [call]}])
        == MESSAGE_OVERHEAD_TOKENS + 1 + 1 + 10
    )
    assert estimate_request([], [ToolSpec("read", "Reads.", {"type": "object"})]) > 20


def test_a_tool_with_half_a_surrogate_is_estimated_like_others() -> None:
    plain, odd = (estimate_request((), (ToolSpec("find", f"Finds {word}.", {}),)) for word in ("it", "\ud800t"))
    assert 0 <= odd - plain <= 5
