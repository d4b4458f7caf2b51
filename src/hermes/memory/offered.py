"""What of a provider's answers can be used: tools that no endpoint would refuse, addresses that rows can hold."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence, Set
from typing import cast, get_args

from hermes.memory.outbox import UNADDRESSED
from hermes.memory.values import Address, EntryKind
from hermes.types import ToolSpec

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST = 64
LONGEST_LANE, LONGEST_DATA = 1000, 16_000
"""Characters of a lane's name, and of the data that each row of it holds."""


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


def address_flaw(address: Address) -> str:
    """What is wrong with an address; "" for a good one. It is written in the commits of turns, which must not fail."""
    lane, wants, pace = cast(object, address.lane), cast(object, address.wants), cast(object, address.pace)
    good = {
        "a lane": type(lane) is str and 0 < len(lane) <= LONGEST_LANE and lane[0] != UNADDRESSED and is_json(lane),
        "data": is_json(address.data) and len(json.dumps(address.data)) <= LONGEST_DATA,
        "wants": isinstance(wants, Set) and wants <= set(get_args(EntryKind)),
        "a pace": pace in ("async", "turn", "session") or (type(pace) is int and pace > 0),
    }
    flawed = [part for part, fine in good.items() if not fine]
    return f"an address with {flawed[0]} that cannot be used" if flawed else ""


def _wrong(spec: object) -> str:
    if not isinstance(spec, ToolSpec):
        return f"a {type(spec).__name__}, which is no ToolSpec"
    name: object = spec.name
    description: object = spec.description
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return "a tool whose name is not 1 to 64 letters, digits, '_' or '-'"
    if not isinstance(description, str):
        return f"a tool '{name}' without a description"
    if not isinstance(spec.parameters, dict) or not is_json(spec.parameters):
        return f"a tool '{spec.name}' whose parameters are no JSON schema"
    return ""


def is_json(value: object) -> bool:
    """Whether a row can hold it, as JSON."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True
