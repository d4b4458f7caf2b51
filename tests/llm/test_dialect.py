"""Encoding of requests."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from hermes.llm.model import ModelRequest
from hermes.llm.openai_compatible import ORJSON_MIN_MESSAGES, Dialect
from hermes.types import Json, ToolSpec

TEXT = st.text(st.characters(), max_size=20)
VALUES = st.none() | st.booleans() | st.integers() | TEXT


@given(st.lists(TEXT, max_size=5), TEXT, VALUES)
def test_a_long_request_has_the_bytes_of_a_short_one_and_more(said: list[str], name: str, value: Json) -> None:
    """Long requests use another JSON encoder; the bytes must not change, or the endpoint's cache would miss."""
    tools = (ToolSpec(name, name, {"type": "object", "default": value}),)
    short = [{"role": "user", "content": text} for text in said]
    long = [*short, *[{"role": "user", "content": "more"}] * ORJSON_MIN_MESSAGES]
    one, other = (Dialect().encode(name, ModelRequest(messages, tools)) for messages in (short, long))
    if said:
        beginning = one[: one.index(b'],"stream"')]
        assert other.startswith(beginning)
    assert one[one.rindex(b'],"stream"') :] == other[other.rindex(b'],"stream"') :]
    assert json.loads(other)["messages"][len(short) :] == long[len(short) :]
