"""Tool calls that a model wrote as text, in the common forms. They are run as calls and never shown as a reply.

    <tool_call>{"name": "x", "arguments": {…}}</tool_call>        [TOOL_CALLS][{"name": "x", "arguments": {…}}]
    {"name": "x", "parameters": {…}}, also between ``` marks       [TOOL_CALLS]x{…}
    CALL {"name": "x", "arguments": {…}} END                       <function=x>{…}</function>
    x(one="…", two=3)                                              <function=x><parameter=one>…</parameter></function>

A text is read as calls only if it ends with calls of known tools. While a reply streams, text that may begin a call is
held back; everything else, JSON and code included, is shown after a few characters.
"""

from __future__ import annotations

import ast
import json
import re
import secrets
import warnings
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from hermes.llm.events import Reply
from hermes.types import Json, ToolCall

HEAD_CHARS = 200
"""Text is held back only if it looks like a call within this many characters."""
MAX_CALL_STARTS = 8
"""How many positions in a reply are tried as the beginning of its calls."""
MAX_PYTHON_CHARS = 20_000
NAME_KEYS = ("name", "function", "tool", "tool_name")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "tool_input")

_SPACE = r"\s{0,99}+"
_MARK = r"(?:<tool_call>|<\|tool_call\|>|<\|python_tag\|>|\[TOOL_CALLS\]|CALL(?=[\s{])|```\w{0,20}|<tools?>)"
_MARKS = re.compile(rf"{_SPACE}(?:{_MARK}{_SPACE}){{0,3}}")
_BEGUN = ("<tool_call>", "<|tool_call|>", "<|python_tag|>", "[TOOL_CALLS]", "CALL", "<tools>", "```")
_CLOSING = r"(?:</(?:tool_call|tools?)>|<\|/?(?:tool_call|im_end|eot_id)\|>|END\b|```|[;,\]])"
_AFTER = re.compile(rf"{_SPACE}(?:{_CLOSING}{_SPACE}){{0,20}}")
_KEYS = "|".join((*NAME_KEYS, *ARGUMENT_KEYS, "type", "id"))
_OTHER_KEY = rf'[^\s"]|"(?!(?:{_KEYS})")[^"]{{0,80}}"'
_OTHER_NAME = rf'"(?:name|tool|tool_name)"{_SPACE}:{_SPACE}"[^"]{{0,99}}"'
_NO_CALL = re.compile(rf"\[?{_SPACE}\{{{_SPACE}(?:{_OTHER_KEY}|{_OTHER_NAME})")
_OBJECT = re.compile(rf"\[?{_SPACE}(?:\{{|$)")
_FUNCTION = re.compile(rf"<function=([\w.-]{{1,64}})>{_SPACE}")
_PARAMETER = re.compile(rf"<parameter=([\w.-]{{1,64}})>\n?(.*?)\n?</parameter>{_SPACE}", re.DOTALL)
_NAMED = re.compile(rf"([\w-]{{1,64}}){_SPACE}(?:\[ARGS\]{_SPACE})?(?=\{{)")
_DECODER = json.JSONDecoder()


class _Parsed(Struct, frozen=True):
    calls: tuple[tuple[str, str], ...]
    """Pairs of a tool name and its arguments, as JSON."""
    end: int


def with_written_calls(reply: Reply, names: frozenset[str]) -> Reply:
    """Return the reply with the calls at the end of its text turned into tool calls. A reply that has real calls, or
    that does not end with written ones, is returned unchanged."""
    if reply.tool_calls or not names:
        return reply
    heads = _heads(names)
    for tried, head in enumerate(heads.finditer(reply.text)):
        if tried == MAX_CALL_STARTS:
            break
        if (found := _read_all(reply.text, head.start(), names)) is not None:
            salt = secrets.token_hex(4)
            calls = tuple(ToolCall(f"call_{salt}_{number}", *call) for number, call in enumerate(found))
            return replace(reply, text=reply.text[: head.start()].rstrip(), tool_calls=calls)
    return reply


@lru_cache(maxsize=64)
def _heads(names: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern for the beginning of a call of one of these tools, at the start of a line."""
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    colon = rf"{_SPACE}:{_SPACE}"
    named = rf'"(?:name|tool|tool_name)"{colon}"(?:{known})"'
    function = rf'"function"{colon}(?:\{{{_SPACE}"name"{colon})?"(?:{known})"'
    unnamed = rf'"(?:{"|".join(ARGUMENT_KEYS)})"{colon}|"type"{colon}"function"|"id"{colon}'
    body = rf"\[?{_SPACE}\{{{_SPACE}(?:{named}|{function}|{unnamed})|<function=(?:{known})>|(?:{known})\("
    marked = rf"(?:{_MARK}{_SPACE}){{1,3}}(?:{body}|(?:{known}){_SPACE}(?:\[ARGS\])?{_SPACE}\{{)"
    return re.compile(rf"^[ \t]{{0,40}}(?:{marked}|{body})", re.MULTILINE)


def _read_all(text: str, start: int, names: frozenset[str]) -> list[tuple[str, str]] | None:
    """Return the calls from `start` to the end of the text, or None if there is anything else."""
    calls: list[tuple[str, str]] = []
    place = start
    while place < len(text):
        marks = _MARKS.match(text, place)
        body = marks.end() if marks else place
        if body == len(text):
            break
        parsed = _read_one(text, body, is_marked=bool(text[place:body].strip()))
        if parsed is None or not all(name in names for name, _ in parsed.calls):
            return None
        calls += parsed.calls
        after = _AFTER.match(text, parsed.end)
        place = after.end() if after else parsed.end
    return calls or None


def _read_one(text: str, place: int, *, is_marked: bool) -> _Parsed | None:
    if text[place] in "{[":
        return _read_json(text, place)
    if (function := _FUNCTION.match(text, place)) is not None:
        return _read_function(text, function)
    if is_marked and (named := _NAMED.match(text, place)) is not None:
        end = _decode(text, named.end())[1]
        return _Parsed(((named[1], text[named.end() : end]),), end)
    return _read_python(text, place)


def _decode(text: str, place: int) -> tuple[Json, int]:
    """Return the JSON value at `place` and its end; None and the end of the text for invalid JSON."""
    try:
        value, end = _DECODER.raw_decode(text, place)
    except (ValueError, RecursionError):
        return None, len(text)
    return value, end


def _read_json(text: str, place: int) -> _Parsed | None:
    value, end = _decode(text, place)
    if value is None:  # a call that is cut off or malformed: running it reports that to the model
        name = re.search(r'"name"\s*:\s*"([\w.-]{1,64})"', text[place : place + HEAD_CHARS])
        return None if name is None else _Parsed(((name[1], text[place:]),), end)
    calls = [_read_object(item) for item in (value if isinstance(value, list) else [value])]
    read = tuple(call for call in calls if call is not None)
    return _Parsed(read, end) if read and len(read) == len(calls) else None


def _read_object(value: Json) -> tuple[str, str] | None:
    """Return the name and arguments of a call, or None for any other object."""
    if not isinstance(value, dict):
        return None
    if isinstance(inner := value.get("function"), dict):
        value = inner
    name = next((value[key] for key in NAME_KEYS if isinstance(value.get(key), str)), None)
    given = next((value[key] for key in ARGUMENT_KEYS if key in value), None)
    if name is None or (given is None and len(value) > 1) or not isinstance(given, dict | str | None):
        return None
    return name, given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)


def _read_function(text: str, function: re.Match[str]) -> _Parsed | None:
    place = function.end()
    if text.startswith("{", place):
        end = _decode(text, place)[1]
        arguments = text[place:end]
    else:
        given: dict[str, Json] = {}
        end = place
        while (parameter := _PARAMETER.match(text, end)) is not None:
            given[parameter[1]] = parameter[2]
            end = parameter.end()
        arguments = json.dumps(given, ensure_ascii=False)
    rest = text[end:].lstrip()
    return _Parsed(((function[1], arguments),), len(text) - len(rest.removeprefix("</function>")))


def _read_python(text: str, place: int) -> _Parsed | None:
    """Read `name(key=literal, …)` up to the end of the text."""
    written = text[place : place + MAX_PYTHON_CHARS].strip().removesuffix("```").rstrip()
    try:
        with warnings.catch_warnings(action="ignore"):
            call = ast.parse(written, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            return None
        given = {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg is not None}
        arguments = json.dumps(given, ensure_ascii=False)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return _Parsed(((call.func.id, arguments),), len(text)) if len(given) == len(call.keywords) else None


class CallStrainer:
    """Holds back possible written calls in a text that arrives in pieces."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._heads = _heads(names) if names else None
        self._begun = list(_BEGUN)
        for name in names:
            self._begun += [f"{name}(", f"{name}[ARGS]", f"<function={name}>"]
        self._held: list[str] = []
        self._is_call = False
        self._in_line = False

    def feed(self, piece: str) -> str:
        """Add a piece and return the text that can be shown now."""
        if self._heads is None:
            return piece
        if self._is_call:
            self._held.append(piece)
            return ""
        return "".join(self._release("".join(self._held) + piece, self._heads))

    def end(self, *, is_call: bool) -> str:
        """Return the text that was held back, or "" if it was a call. `is_call` is also true of a call that never
        ended."""
        rest = "" if is_call else "".join(self._held)
        self._held, self._is_call = [], False
        return rest

    @property
    def holds_call(self) -> bool:
        """True if the text held back begins as a call of a known tool."""
        return self._is_call

    def _release(self, text: str, heads: re.Pattern[str]) -> Iterator[str]:
        """Yield the text line by line, up to a line that may begin a call; hold back the rest."""
        self._held = []
        while text:
            if not self._in_line:
                self._is_call = heads.match(text) is not None
                if self._is_call or self._may_begin(text):
                    self._held = [text]
                    return
            cut = text.find("\n") + 1
            self._in_line = cut == 0
            yield text[: cut or None]
            text = text[cut:] if cut else ""

    def _may_begin(self, text: str) -> bool:
        """Return True if a call may begin with `text`, as far as it has arrived."""
        if len(text) > HEAD_CHARS:
            return False
        marks = _MARKS.match(text)
        rest = text[marks.end() :] if marks else text
        marked = len(text.strip()) > len(rest)
        if not rest:
            return True
        if _OBJECT.match(rest) and not _NO_CALL.match(rest):
            return True
        if marked and rest.rstrip() in self._names:
            return True
        return any(start.startswith(rest) for start in self._begun)
