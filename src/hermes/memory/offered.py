"""Which of a provider's tools can be offered. A malformed one would make the endpoint refuse every request."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence

from hermes.types import ToolSpec

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST = 64


def usable_tools(given: Sequence[object], taken: Collection[str]) -> tuple[tuple[ToolSpec, ...], str]:
    """The tools that can be offered beside those whose names are `taken`, and what is wrong with the first other."""
    good: dict[str, ToolSpec] = {}
    problem = ""
    for spec in given:
        wrong = "more tools than can be offered" if len(good) == MOST else _wrong(spec)
        if not wrong and isinstance(spec, ToolSpec):
            if spec.name in taken:
                wrong = f"a tool '{spec.name}', which is a built-in one"
            elif spec.name in good:
                wrong = f"two tools '{spec.name}'"
            else:
                good[spec.name] = spec
        problem = problem or wrong
    return tuple(good.values()), problem


def _wrong(spec: object) -> str:
    if not isinstance(spec, ToolSpec):
        return f"a {type(spec).__name__}, which is no ToolSpec"
    name: object = spec.name
    description: object = spec.description
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return "a tool whose name is not 1 to 64 letters, digits, '_' or '-'"
    if not isinstance(description, str):
        return f"a tool '{name}' without a description"
    if not isinstance(spec.parameters, dict) or not _is_json(spec.parameters):
        return f"a tool '{spec.name}' whose parameters are no JSON schema"
    return ""


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
