"""Checks of a provider's results: tools that endpoints accept, and addresses and recalls that rows can hold."""

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

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_TOOLS = 64
MAX_RECALL_CHARS = 32_000
"""Limits the recalled text; more would crowd the conversation out of the model's window."""
MAX_SOURCES, MAX_SOURCE_CHARS = 200, 500
MAX_RECALLED_LINES = 200
MAX_LAYER_CHARS, MAX_REASON_CHARS = 100, 300
MAX_NUMBER = 32503680000.0
"""The year 3000 in seconds: larger times or numbers from a plugin are dropped."""
MAX_LANE_CHARS, MAX_DATA_CHARS = 1000, 16_000
"""Limits a lane's name, and the address data in each of its rows."""


class OpenedMemory(Struct, frozen=True):
    """An open session, with its values that never change."""

    session: MemorySession
    address: Address
    block: str
    tools: Sequence[object]
    block_without_tools: str | None = None


def usable_tools(given: Sequence[object], taken: Collection[str]) -> tuple[tuple[ToolSpec, ...], str]:
    """Return the tools that can be offered beside those named in `taken`, and the first problem with another."""
    good: dict[str, ToolSpec] = {}
    problem = ""
    for spec in given:
        wrong = "more tools than can be offered" if len(good) == MAX_TOOLS else _wrong(spec)
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
    """Describe why an address is unusable; "" if it is usable. Addresses are written in turns' commits, which must not
    fail."""
    lane, wants, pace = cast(object, address.lane), cast(object, address.wants), cast(object, address.pace)
    good = {
        "a lane": type(lane) is str and 0 < len(lane) <= MAX_LANE_CHARS and lane[0] != UNADDRESSED and is_json(lane),
        "data": is_json(address.data) and len(json.dumps(address.data)) <= MAX_DATA_CHARS,
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
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        return "a tool whose name is not 1 to 64 letters, digits, '_' or '-'"
    if not isinstance(description, str):
        return f"a tool '{name}' without a description"
    if not isinstance(spec.parameters, dict) or not is_json(spec.parameters):
        return f"a tool '{spec.name}' whose parameters are no JSON schema"
    return ""


def is_json(value: object) -> bool:
    """Return True if a row can store the value as JSON."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def opened_flaw(opened: OpenedMemory) -> str:
    """Describe why an opened session is unusable; "" if it is usable. A plugin may return anything."""
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
    """Return the complete text of a recall."""
    return "\n\n".join(part.text for part in parts if _is_part(part) and part.text)


def recall_flaw(recalled: Recalled) -> str:
    """Describe why a recall is unusable; "" if it is usable."""
    if not all(map(_is_part, recalled.parts)):
        return "something that is no Part"
    return excess(recall_text(recalled.parts), MAX_RECALL_CHARS)


def recall_lines(recalled: Recalled) -> tuple[RecalledLine, ...]:
    """Return the recalled lines. If the plugin gives none, its text is split into lines."""
    given = [replace(line, text=disarm(line.text)) for line in recalled.lines if _is_line(line)]
    text = "" if given else recall_text(recalled.parts)[:MAX_RECALL_CHARS]
    split = (line.strip().lstrip("-*• ") for line in text.splitlines() if line[:1] != "#")
    return tuple(given or (RecalledLine(line) for line in split if line))[:MAX_RECALLED_LINES]


def excess(text: str, max_chars: int) -> str:
    """Describe that a text is longer than its limit; "" if it is not."""
    return f"{len(text)} characters, {max_chars} are used" if len(text) > max_chars else ""


def storable_parts(parts: Iterable[object]) -> tuple[InjectedPart, ...]:
    """Return the parts of a recall as stored in its record. A plugin may give anything for a number."""
    return tuple(_storable_part(part) for part in parts if _is_part(part))


def storable_reasons(missed: Mapping[str, str]) -> dict[str, str]:
    """Return the reasons for missed layers as stored in the record."""
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
    """Return a number that a row can store; None for anything else."""
    return float(value) if isinstance(value, int | float) and -MAX_NUMBER < value < MAX_NUMBER else None


def _storable(text: str, max_chars: int) -> str:
    return text[:max_chars].encode("utf-8", "replace").decode()
