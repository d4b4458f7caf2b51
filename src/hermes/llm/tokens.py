"""Token estimates, close enough to decide what fits. Characters are counted; no vocabulary or model is needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

import msgspec

from hermes.llm.model import tool_to_wire
from hermes.types import Json, LiveView, Message, ToolSpec

WIDE = re.compile("[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff]+")
"""Han, kana, hangul and emoji: about one token per character."""

OTHER = re.compile("[\u0370-\u10ff\u1200-\u1dff]+")
"""Greek, Cyrillic, Hebrew, Arabic, Indic and other alphabets: about one token per two characters."""

MESSAGE_OVERHEAD_TOKENS = 4
"""Role and separators of a message in a request."""

STORED_MESSAGE_OVERHEAD_TOKENS = 8
"""Role and separators of a stored message, with what a request may add to it."""

ATTACHMENT_TOKENS = 1000
"""Estimate for an image or another part that is not text."""
ATTACHMENT_TYPES = ("image_url", "input_audio", "file")


def estimate_tokens(text: str) -> int:
    """Return about how many tokens `text` has."""
    if text.isascii():
        return (len(text) + 3) // 4
    wide = sum(map(len, WIDE.findall(text)))
    other = sum(map(len, OTHER.findall(text)))
    return wide + (other + 1) // 2 + (len(text) - wide - other + 3) // 4


def estimate_request(messages: Iterable[dict[str, Json]], tools: Sequence[ToolSpec] = ()) -> int:
    """Return about how many tokens a request has, including role markers and tool schemas."""
    return sum(map(_schema_tokens, tools)) + sum(
        MESSAGE_OVERHEAD_TOKENS + _estimate_object(message) for message in messages
    )


def _schema_tokens(tool: ToolSpec) -> int:
    wire = tool_to_wire(tool)
    try:
        text = msgspec.json.encode(wire).decode()
    except UnicodeEncodeError:  # a lone surrogate
        text = json.dumps(wire)
    return estimate_tokens(text)


def message_tokens(message: Message) -> int:
    """Return about how many tokens a stored message has in a request."""
    tokens = STORED_MESSAGE_OVERHEAD_TOKENS + estimate_tokens(message.content or "")
    for call in message.tool_calls:
        tokens += estimate_tokens(call.name) + estimate_tokens(call.arguments)
    return tokens


def view_tokens(view: LiveView) -> int:
    """Return about how many tokens a view has in a request."""
    stored = sum(map(message_tokens, view.head)) + sum(map(message_tokens, view.tail))
    return estimate_tokens(view.summary or "") + stored


def _estimate_object(value: dict[str, Json]) -> int:
    if value.get("type") in ATTACHMENT_TYPES:
        return ATTACHMENT_TOKENS
    tokens = 0
    for key, inner in value.items():
        if key not in ("role", "type"):
            tokens += estimate_tokens(inner) if isinstance(inner, str) else _estimate_value(inner)
    return tokens


def _estimate_value(value: Json) -> int:
    if isinstance(value, str):
        return estimate_tokens(value)
    if isinstance(value, list):
        return sum(map(_estimate_value, value))
    if isinstance(value, dict):
        return _estimate_object(value)
    return 0 if value is None else 1


def fit_tokens(text: str, tokens: int) -> str:
    """Return the longest prefix of `text` with about `tokens` tokens or fewer."""
    if estimate_tokens(text) <= tokens:
        return text
    low, high = 0, max(0, tokens) * 4
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(text[:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def keep_ends(text: str, tokens: int, gap: str) -> str:
    """Return both ends of a text that is too long, with `gap` between them, in about `tokens` tokens."""
    if estimate_tokens(text) <= tokens:
        return text
    half = max(0, tokens - estimate_tokens(gap)) // 2
    return f"{fit_tokens(text, half)}{gap}{fit_tokens(text[::-1], half)[::-1]}"
