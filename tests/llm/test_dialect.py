"""Encoding of requests."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from hermes.llm.model import ModelRequest
from hermes.llm.openai_compatible import Dialect
from hermes.types import Json, ToolSpec

TEXT = st.text(st.characters(), max_size=20)
VALUES = st.none() | st.booleans() | st.integers() | TEXT


@given(st.lists(TEXT, max_size=5), TEXT, VALUES)
def test_a_request_with_half_a_surrogate_begins_with_the_bytes_of_one_without(
    said: list[str], name: str, value: Json
) -> None:
    """Another JSON encoder writes it; the bytes before must not change, or the endpoint's cache would miss."""
    tools = (ToolSpec(name, name, {"type": "object", "default": value}),)
    short = [{"role": "user", "content": text} for text in said]
    long = [*short, {"role": "user", "content": "half \ud800"}]
    one, other = (Dialect().encode(name, ModelRequest(messages, tools)) for messages in (short, long))
    if said:
        beginning = one[: one.index(b'],"stream"')]
        assert other.startswith(beginning)
    assert one[one.rindex(b'],"stream"') :] == other[other.rindex(b'],"stream"') :]
    assert json.loads(other)["messages"][len(short) :] == [{"role": "user", "content": "half ?"}]
