"""Counting tokens as Honcho does (o200k_base), offline."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _encoding() -> Any:
    # The vocabulary takes a moment and some memory: whoever counts nothing pays nothing.
    from rs_bpe import openai

    return openai.o200k_base()


def count_tokens(text: str) -> int:
    """How many tokens `text` has."""
    return int(_encoding().count(text))
