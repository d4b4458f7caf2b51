"""JSON in the text of a model: found, repaired if it is damaged in the usual ways, and checked against a schema.

Removal of the thoughts that a model writes between tags, from a whole text or from a stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from hermes.types import Json, ToolSpec

FENCED = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
MAX_STARTS = 20
"""Brackets at which JSON is tried, and places at which truncated JSON is closed."""
SCHEMA_ORDER = "Answer with one JSON object that follows this schema, and with nothing else:"
TOOLS_ORDER = (
    'To use a tool, answer with nothing but {{"name": NAME, "arguments": {{...}}}}; you are then given its result. '
    "The tools, with the schema of their arguments:\n{}"
)
TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def read_json(text: str, schema: Json) -> tuple[Json, str | None]:
    """Return the first value in the text that fits the schema, else None and what is wrong with the first value
    found."""
    problem = None
    for value in find_values(text):
        wrong = find_mismatch(value, schema)
        if wrong is None:
            return value, None
        problem = problem or wrong
    return None, problem or "there is no JSON in it"


def find_values(text: str) -> Iterator[Json]:
    """Yield the JSON objects and lists in a text, intact ones before repaired ones."""
    places = [*(found.group(1) for found in FENCED.finditer(text)), text]
    starts = [place[at.start() :] for place in places for at in list(re.finditer(r"[\[{]", place))[:MAX_STARTS]]
    decoder = json.JSONDecoder()
    for start in starts:
        try:
            yield decoder.raw_decode(start)[0]
        except (ValueError, RecursionError):
            continue
    for start in starts[:2]:
        yield from _repaired(start)


def _repaired(text: str) -> Iterator[Json]:
    """Yield the text with trailing commas removed and open brackets closed, the longest version first."""
    ends = list(_ends(text))
    for end, closing in ends[: -MAX_STARTS - 1 : -1]:
        try:
            yield json.loads(re.sub(r",\s*([}\]])", r"\1", text[:end].rstrip().rstrip(",") + closing))
        except (ValueError, RecursionError):
            continue


def _ends(text: str) -> Iterator[tuple[int, str]]:
    """Yield positions at which the text may end, with the brackets that close it: after each value, and at the end."""
    stack: list[str] = []
    quoted = escaped = False
    for at, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "{[":
            stack.append("}" if character == "{" else "]")
        elif character in "}]" and stack:
            stack.pop()
            yield at + 1, "".join(reversed(stack))
            if not stack:
                return
        elif character == ",":
            yield at, "".join(reversed(stack))
    yield len(text), '"' * quoted + "".join(reversed(stack))


def find_mismatch(value: Json, schema: Json, where: str = "the answer") -> str | None:
    """Return the first violation of the schema, None for a valid value. Supported keywords: type, properties, required,
    items, enum, const, anyOf."""
    if not isinstance(schema, dict):
        return None
    if isinstance(options := schema.get("anyOf"), list) and options:
        wrong = [find_mismatch(value, option, where) for option in options]
        return None if None in wrong else wrong[0]
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is none of {json.dumps(schema['enum'])[:200]}"
    if "const" in schema and value != schema["const"]:
        return f"{where} is not {json.dumps(schema['const'])[:200]}"
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is_of(value, kind) for kind in kinds):
        return f"{where} is not of type {' or '.join(map(str, kinds))}"
    return _inner_mismatch(value, schema, where)


def _is_of(value: Json, kind: str) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(value, TYPES.get(kind, (object,)))


def _inner_mismatch(value: Json, schema: Mapping[str, Json], where: str) -> str | None:
    if isinstance(value, list):
        items = schema.get("items")
        found = (find_mismatch(one, items, f"{where}[{at}]") for at, one in enumerate(value))
        return next((wrong for wrong in found if wrong), None)
    if not isinstance(value, dict):
        return None
    if missing := [name for name in schema.get("required", ()) if name not in value]:
        return f"{where} lacks '{missing[0]}'"
    inner = schema.get("properties", {})
    found = (find_mismatch(value[name], inner[name], name) for name in inner if name in value)
    return next((wrong for wrong in found if wrong), None)


def describe_schema(schema: Json) -> str:
    """Return the instruction that asks a model for the schema."""
    return f"{SCHEMA_ORDER}\n{json.dumps(schema, ensure_ascii=False, separators=(',', ':'))}"


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """Return the instruction that describes tools, for endpoints that do not accept them."""
    lines = (f"- {tool.name}: {tool.description} {json.dumps(tool.parameters, ensure_ascii=False)}" for tool in tools)
    return TOOLS_ORDER.format("\n".join(lines))


def to_text_protocol(messages: Sequence[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return the messages with tool calls and their results written as plain text."""
    found: list[dict[str, Json]] = []
    for message in messages:
        if message.get("role") == "tool":
            found.append({"role": "user", "content": f"The tool's result:\n{message.get('content') or ''}"})
        elif calls := message.get("tool_calls"):
            written = [_call_text(call["function"]) for call in calls]
            found.append({"role": "assistant", "content": "\n".join([message.get("content") or "", *written]).strip()})
        else:
            found.append(message)
    return found


def _call_text(function: Mapping[str, Json]) -> str:
    return f'{{"name": {json.dumps(function["name"])}, "arguments": {function.get("arguments") or "{}"}}}'


OPENING = re.compile(r"<(think|thinking|reasoning)>", re.IGNORECASE)
CLOSING = re.compile(r"</(think|thinking|reasoning)>", re.IGNORECASE)
TAG_CHARS = len("</reasoning>")


def without_thoughts(text: str) -> str:
    """Return the text without thoughts. A model may omit their end, and an endpoint their beginning."""
    visible = VisibleText()
    shown = visible.add(text)
    return (shown + visible.end()).strip()


class VisibleText:
    """A filter that removes thoughts from a text that arrives in pieces."""

    def __init__(self) -> None:
        self._rest = ""
        self._is_thought = self._is_begun = False

    def add(self, piece: str) -> str:
        """Add a piece and return the text that can be shown. What may become a tag is held back."""
        self._rest += piece
        shown = ""
        while (tag := (CLOSING if self._is_thought else OPENING).search(self._rest)) is not None:
            shown += "" if self._is_thought else self._rest[: tag.start()]
            self._rest = self._rest[tag.end() :]
            self._is_thought = not self._is_thought
        if (
            not self._is_thought and (tag := CLOSING.search(self._rest)) is not None
        ):  # a closing tag without an opening one
            shown, self._rest = "", self._rest[tag.end() :]
        held = self._rest.rfind("<", -TAG_CHARS)
        done = len(self._rest) if held < 0 else held
        if not self._is_thought:
            shown += self._rest[:done]
        self._rest = self._rest[done:]
        shown = shown if self._is_begun else shown.lstrip()
        self._is_begun = self._is_begun or bool(shown)
        return shown

    def end(self) -> str:
        """End the text and return what was held back."""
        rest, self._rest = self._rest, ""
        return "" if self._is_thought else rest
