"""What an endpoint says about an error, whatever shape it says it in."""

from __future__ import annotations

import html
import json
import re

from msgspec import Struct

from hermes.llm.assemble import mapping, mend, string
from hermes.types import Json

TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
MESSAGE_KEYS = ("message", "msg", "detail", "error_description", "error")
CODE_KEYS = ("code", "type", "status")
DEEPEST = 6
"""Proxies wrap the error of the endpoint behind them, as JSON or as text of JSON, once or twice."""


class ErrorBody(Struct, frozen=True):
    """The innermost message, every code on the way to it, and the HTTP status if one of them was one."""

    message: str
    codes: tuple[str, ...] = ()
    status: int | None = None


def read_error(text: str) -> ErrorBody:
    """Read an error's body: JSON in any known shape, a web page, or plain text."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return read_error_value(json.loads(text))
        except (ValueError, RecursionError):
            return ErrorBody(text)
    if text.lstrip().startswith("<"):
        title = TITLE.search(text)
        return ErrorBody(f"a web page titled '{html.unescape(title[1].strip())}'" if title else "a web page")
    return ErrorBody(text.strip())


def read_error_value(value: Json) -> ErrorBody:
    """Read an error that is JSON already."""
    codes: list[str] = []
    message = mend(_read(value, codes, DEEPEST))
    statuses = [int(code) for code in codes if code.isdecimal() and 400 <= int(code[:4]) <= 599]
    return ErrorBody(message, tuple(codes), statuses[-1] if statuses else None)


def _read(value: Json, codes: list[str], depth: int) -> str:
    """The message in `value`; codes found on the way are added to `codes`."""
    if depth == 0 or value is None:
        return ""
    if isinstance(value, str):
        return _read_text(value, codes, depth)
    if isinstance(value, list):
        return next((said for entry in value if (said := _read(entry, codes, depth - 1))), "")
    fields = mapping(value)
    codes.extend(str(fields[key]) for key in CODE_KEYS if isinstance(fields.get(key), str | int))
    # What a router was told by the endpoint behind it says more than its own words.
    inner = _read(string(mapping(fields.get("metadata")).get("raw")), codes, depth - 1)
    return inner or next((said for key in MESSAGE_KEYS if (said := _read(fields.get(key), codes, depth - 1))), "")


def _read_text(text: str, codes: list[str], depth: int) -> str:
    if not text.lstrip().startswith("{"):
        return text.strip()
    try:
        return _read(json.loads(text), codes, depth - 1) or text
    except (ValueError, RecursionError):
        return text
