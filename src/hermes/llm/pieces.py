"""Text and tool calls that come in pieces, and what endpoints do to them on the way."""

from __future__ import annotations

import json
import re

from msgspec import Struct, field

from hermes.types import Json, ToolCall

SURROGATE = re.compile("[\ud800-\udfff]")


def mend(text: str) -> str:
    """`text` with the halves of characters joined; a half that stands alone cannot be stored and becomes U+FFFD."""
    if not SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def string(value: Json) -> str:
    """`value` if it is text, else nothing."""
    return value if isinstance(value, str) else ""


def mapping(value: Json) -> dict[str, Json]:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def mappings(value: Json) -> list[dict[str, Json]]:
    """The JSON objects of a list; nothing if it is none."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


class TextPieces:
    """Text out of pieces; a character whose two halves came in different pieces is made whole again."""

    def __init__(self) -> None:
        self._ready: list[str] = []
        self._half = ""

    def add(self, piece: str) -> str:
        """What can be shown now."""
        piece = self._half + piece
        self._half = ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        return self._keep(mend(piece))

    def close(self) -> str:
        """What was held back for its other half."""
        half, self._half = self._half, ""
        return self._keep(mend(half))

    def joined(self) -> str:
        """All that was shown."""
        return "".join(self._ready)

    def _keep(self, text: str) -> str:
        if text:
            self._ready.append(text)
        return text


class _Call(Struct):
    index: int | None
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def is_over(self, id_: str, name: str) -> bool:
        """Whether a piece with the same index begins another call.

        Some endpoints number all parallel calls 0, or not at all; some give each piece an id of its own.
        """
        if id_ and self.id:
            return id_ != self.id and bool(name)
        return self.index is None and bool(self.name) and bool(name)

    def add(self, id_: str, name: str, arguments: str) -> None:
        self.id = self.id or id_
        # Some endpoints repeat the whole name with every piece.
        self.name += name if name != self.name else ""
        self.arguments.append(arguments)


def call_texts(piece: dict[str, Json]) -> tuple[str, str, str]:
    """The id, the name and the arguments in a piece of a call; "" for what it has not."""
    function = mapping(piece.get("function"))
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
    return string(piece.get("id")), string(function.get("name")), text


class CallPieces:
    """Tool calls out of pieces, in the order in which they began."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, piece: dict[str, Json]) -> None:
        """Put a piece where it belongs. Arguments stay the text that the model wrote."""
        id_, name, text = call_texts(piece)
        index = piece.get("index")
        self._find(index if isinstance(index, int) else None, id_, name).add(id_, name, text)

    def joined(self, salt: str) -> tuple[ToolCall, ...]:
        """The calls so far, each with an id of its own: `salt` makes one for those that came without."""
        taken: set[str] = set()
        calls: list[ToolCall] = []
        for number, call in enumerate(self._calls):
            id_ = mend(call.id) if call.id and call.id not in taken else f"call_{salt}_{number}"
            taken.add(id_)
            calls.append(ToolCall(id_, mend(call.name), mend("".join(call.arguments))))
        return tuple(calls)

    def _find(self, index: int | None, id_: str, name: str) -> _Call:
        for call in reversed(self._calls):
            if call.index == index:
                return self._begin(index) if call.is_over(id_, name) else call
        return self._begin(index)

    def _begin(self, index: int | None) -> _Call:
        self._calls.append(_Call(index))
        return self._calls[-1]
