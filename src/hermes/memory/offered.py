"""What of a provider's answers can be used: tools that no endpoint would refuse, addresses and recalled parts that rows
can hold."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import TypeGuard, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from hermes.fence import disarm
from hermes.memory.outbox import UNADDRESSED
from hermes.memory.provider import MemorySession
from hermes.memory.values import Address, EntryKind, Part, Recalled
from hermes.store.injections import InjectedPart
from hermes.types import RecalledLine, ToolSpec

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST = 64
MAX_RECALL_CHARS = 32_000
"""Characters of a recall that are used; more would crowd the conversation out of the model's window."""
MAX_SOURCES, MAX_SOURCE_CHARS = 200, 500
MAX_LINES = 200
MAX_LAYER_CHARS, MAX_REASON_CHARS = 100, 300
MAX_NUMBER = 32503680000.0
"""The year 3000 in seconds: a larger time or number from a plugin is dropped."""
LONGEST_LANE, LONGEST_DATA = 1000, 16_000
"""Characters of a lane's name, and of the data that each row of it holds."""


class OpenedMemory(Struct, frozen=True):
    """A session that is open, and what is the same for its life."""

    session: MemorySession
    address: Address
    block: str
    tools: Sequence[object]
    block_without_tools: str | None = None


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


def opened_flaw(opened: OpenedMemory) -> str:
    """What of an opened session is not what it should be: a plugin may give anything."""
    parts: dict[str, tuple[object, type]] = {
        "MemorySession": (opened.session, MemorySession),
        "Address": (opened.address, Address),
        "prompt_block": (opened.block, str),
        "block_without_tools": (opened.block_without_tools or "", str),
        "tools": (opened.tools, Sequence),
    }
    wrong = [
        f"{type(given).__name__} as {name}" for name, (given, kind) in parts.items() if not isinstance(given, kind)
    ]
    return wrong[0] if wrong else address_flaw(opened.address)


def recall_text(parts: Iterable[object]) -> str:
    """Return the text of a recall, whole."""
    return "\n\n".join(part.text for part in parts if _is_part(part) and part.text)


def recall_flaw(recalled: Recalled) -> str:
    """What is wrong with a recall; "" for a good one."""
    if not all(map(_is_part, recalled.parts)):
        return "something that is no Part"
    return excess(recall_text(recalled.parts), MAX_RECALL_CHARS)


def recall_lines(recalled: Recalled) -> tuple[RecalledLine, ...]:
    """Return what was recalled as data. The text of a plugin that gives none is split into lines."""
    given = [replace(line, text=disarm(line.text)) for line in recalled.lines if _is_line(line)]
    text = "" if given else recall_text(recalled.parts)[:MAX_RECALL_CHARS]
    split = (line.strip().lstrip("-*• ") for line in text.splitlines() if line[:1] != "#")
    return tuple(given or (RecalledLine(line) for line in split if line))[:MAX_LINES]


def excess(text: str, most: int) -> str:
    """Say that a text is longer than is used; "" when it is not."""
    return f"{len(text)} characters, {most} are used" if len(text) > most else ""


def storable_parts(parts: Iterable[object]) -> tuple[InjectedPart, ...]:
    """Return the parts of a recall as they are recorded. A plugin may give anything for a number."""
    return tuple(_storable_part(part) for part in parts if _is_part(part))


def storable_reasons(missed: Mapping[str, str]) -> dict[str, str]:
    """Return why layers were missed, as it is recorded."""
    return {
        _storable(str(name), MAX_LAYER_CHARS): _storable(str(why), MAX_REASON_CHARS) for name, why in missed.items()
    }


def _is_part(part: object) -> TypeGuard[Part]:
    return isinstance(part, Part) and type(part.text) is str


def _is_line(line: object) -> bool:
    return isinstance(line, RecalledLine) and type(line.text) is str


def _storable_part(part: Part) -> InjectedPart:
    as_of, tokens, cut = map(_number, (part.as_of, part.tokens, part.cut))
    layer, text = _storable(str(part.layer), MAX_LAYER_CHARS), _storable(part.text, MAX_RECALL_CHARS)
    sources, left_out = map(_storable_texts, (part.sources, part.left_out))
    return InjectedPart(layer, text, as_of, int(tokens or 0), int(cut or 0), sources, left_out)


def _storable_texts(given: object) -> tuple[str, ...]:
    listed = given[:MAX_SOURCES] if isinstance(given, tuple | list) else ()
    return tuple(_storable(str(line), MAX_SOURCE_CHARS) for line in listed)


def _number(value: object) -> float | None:
    """Return a number that a row can hold; None for what is none."""
    return float(value) if isinstance(value, int | float) and -MAX_NUMBER < value < MAX_NUMBER else None


def _storable(text: str, most: int) -> str:
    return text[:most].encode("utf-8", "replace").decode()
