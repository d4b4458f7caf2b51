"""Assemble a reply from the chunks of its stream, and repair what endpoints do to text and tool calls on the way. The
result does not depend on where the stream was cut."""

from __future__ import annotations

import json
import re

from msgspec import Struct, field

from hermes.llm.events import Delta, ReasoningPiece, Reply, TextPiece, Usage
from hermes.types import Json, ToolCall

SURROGATES = re.compile("[\ud800-\udfff]")


def mend(text: str) -> str:
    """Return `text` with surrogate pairs joined; a lone surrogate, which cannot be stored, becomes U+FFFD."""
    if not SURROGATES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def string(value: Json) -> str:
    """Return `value` if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def mapping(value: Json) -> dict[str, Json]:
    """Return `value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def mappings(value: Json) -> list[dict[str, Json]]:
    """Return the JSON objects in a list; an empty list for any other value."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


class TextPieces:
    """Text joined from pieces. A character whose two surrogates arrive in different pieces is made whole again."""

    def __init__(self) -> None:
        self._ready: list[str] = []
        self._half = ""

    def add(self, piece: str) -> str:
        """Add a piece and return the text that can be shown now."""
        piece = self._half + piece
        self._half = ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        return self._keep(mend(piece))

    def close(self) -> str:
        """Return the half character that was held back, if any."""
        half, self._half = self._half, ""
        return self._keep(mend(half))

    def joined(self) -> str:
        return "".join(self._ready)

    def _keep(self, text: str) -> str:
        if text:
            self._ready.append(text)
        return text


MAX_TOOL_CALLS = 1_000
MAX_TOOL_NAME_CHARS = 1_000


class MalformedChunk(Exception):
    """A chunk of the stream that breaks the protocol."""


class _Call(Struct):
    index: int | None
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def is_followed_by(self, id_: str, name: str) -> bool:
        """Return True if a piece with the same index begins another call.

        Some endpoints number all parallel calls 0, or not at all; some give each piece of one call a different id.
        """
        if id_ and self.id:
            return id_ != self.id and bool(name)
        return self.index is None and bool(self.name) and bool(name)

    def add(self, id_: str, name: str, arguments: str) -> None:
        self.id = self.id or id_
        # Some endpoints repeat the whole name with every piece.
        self.name = (self.name + (name if name != self.name else ""))[:MAX_TOOL_NAME_CHARS]
        self.arguments.append(arguments)


def call_texts(piece: dict[str, Json]) -> tuple[str, str, str]:
    """Return the id, name and arguments in a piece of a call; "" for each that is missing."""
    function = mapping(piece.get("function"))
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
    return string(piece.get("id")), string(function.get("name")), text


class CallPieces:
    """Tool calls joined from pieces, in the order in which they began."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._latest: dict[int | None, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, piece: dict[str, Json]) -> None:
        """Add a piece to its call. Arguments stay the text that the model wrote."""
        id_, name, text = call_texts(piece)
        index = piece.get("index")
        self._find(index if isinstance(index, int) else None, id_, name).add(id_, name, text)

    def joined(self, salt: str) -> tuple[ToolCall, ...]:
        """Return the calls so far with unique ids; calls without a usable id get one made from `salt`."""
        taken: set[str] = set()
        calls: list[ToolCall] = []
        for number, call in enumerate(self._calls):
            id_ = mend(call.id) if call.id and call.id not in taken else f"call_{salt}_{number}"
            taken.add(id_)
            calls.append(ToolCall(id_, mend(call.name), mend("".join(call.arguments))))
        return tuple(calls)

    def _find(self, index: int | None, id_: str, name: str) -> _Call:
        call = self._latest.get(index)
        if call is not None and not call.is_followed_by(id_, name):
            return call
        if len(self._calls) == MAX_TOOL_CALLS:
            raise MalformedChunk(f"a reply with more than {MAX_TOOL_CALLS:,} tool calls")
        self._latest[index] = call = _Call(index)
        self._calls.append(call)
        return call


DONE = "[DONE]"
FINISHED_BY_LENGTH = "length"
"""The `finish_reason` with which endpoints report that a reply was cut at a length limit."""
MAX_REPLY_CHARS = 200_000


class StreamedError(Exception):
    """An error that the endpoint sent in the stream, in place of a piece of the reply."""

    def __init__(self, body: Json) -> None:
        super().__init__("the stream holds an error")
        self.body = body


class Assembler:
    """Joins the chunks of one reply, in order, up to `max_chars` characters of text, reasoning and calls together.

    `salt` makes ids for tool calls that came without one.
    """

    def __init__(self, salt: str = "", max_chars: int = MAX_REPLY_CHARS) -> None:
        self.done = False
        self.is_truncated = False
        """True once the reply has exceeded `max_chars`; the excess is dropped."""
        self.size = 0
        """Characters so far; grows with every piece of the reply."""
        self.has_choice = False
        self.finish_reason: str | None = None
        self._salt = salt
        self._max_chars = max_chars
        self._text = TextPieces()
        self._reasoning = TextPieces()
        self._calls = CallPieces()
        self._usage: Usage | None = None
        self._model: str | None = None

    def feed(self, data: str, name: str = "") -> list[Delta]:
        """Add a chunk and return what it contributes to the reply.

        Raises MalformedChunk or StreamedError; earlier chunks stay.
        """
        if data.strip() == DONE:
            self.done = True
            return []
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise MalformedChunk("a chunk that is not JSON") from error
        if not isinstance(chunk, dict):
            raise MalformedChunk("a chunk that is not a JSON object")
        if chunk.get("error") or name == "error":
            raise StreamedError(chunk)
        self._model = string(chunk.get("model")) or self._model
        self._usage = _read_usage(chunk.get("usage")) or self._usage
        return [delta for choice in mappings(chunk.get("choices")) for delta in self._take(choice)]

    def close(self) -> list[Delta]:
        """Return the text that was held back for its second half."""
        return _deltas(self._reasoning.close(), self._text.close())

    def reply(self) -> Reply:
        """Return the reply as received so far."""
        return Reply(
            text=self._text.joined(),
            reasoning=self._reasoning.joined(),
            tool_calls=self._calls.joined(self._salt),
            finish_reason=self.finish_reason,
            usage=self._usage,
            model=self._model,
            cut_at=self._max_chars if self.is_truncated else None,
        )

    def finish_at_limit(self) -> bool:
        """Accept the truncated text as the reply. Return False if it has no text, or a tool call that may be
        incomplete."""
        self.finish_reason = FINISHED_BY_LENGTH
        return bool(self._text.joined()) and not self._calls

    def _take(self, choice: dict[str, Json]) -> list[Delta]:
        if choice.get("index", 0) != 0:
            return []
        self.has_choice = True
        self.finish_reason = string(choice.get("finish_reason")) or self.finish_reason
        # An endpoint that does not stream sends one `message` in place of the deltas.
        piece = mapping(choice.get("delta")) or mapping(choice.get("message"))
        for call in mappings(piece.get("tool_calls")):
            self._admit("".join(call_texts(call)) + " ")  # an empty call counts as well: there may be endlessly many
            if self.is_truncated:
                return []
            self._calls.add(call)
        thought, said = _read_content(piece.get("content"))
        # Endpoints in transition send both names with the same text.
        thought = string(piece.get("reasoning_content")) or string(piece.get("reasoning")) or thought
        thought, said = self._admit(thought), self._admit(said or string(piece.get("refusal")))
        return _deltas(self._reasoning.add(thought), self._text.add(said))

    def _admit(self, piece: str) -> str:
        """Return the part of a piece that fits the limit, and count it."""
        room_chars = self._max_chars - self.size
        self.is_truncated = self.is_truncated or len(piece) > room_chars
        self.size = min(self._max_chars, self.size + len(piece))
        return piece[:room_chars]


def _deltas(thought: str, said: str) -> list[Delta]:
    thoughts: list[Delta] = [ReasoningPiece(thought)] if thought else []
    return [*thoughts, TextPiece(said)] if said else thoughts


def _read_content(content: Json) -> tuple[str, str]:
    """Return the reasoning and the text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return "", content
    thought = said = ""
    for part in mappings(content):
        thinking = part.get("thinking")
        thought += string(thinking) or "".join(string(inner.get("text")) for inner in mappings(thinking))
        said += string(part.get("text"))
    return thought, said


def _read_usage(value: Json) -> Usage | None:
    usage = mapping(value)
    if not usage:
        return None
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(mapping(usage.get("prompt_tokens_details")).get("cached_tokens")),
    )


def _count(value: Json) -> int:
    """Return a token count; 0 for a value that cannot be one."""
    if isinstance(value, float):
        value = int(value) if value.is_integer() else 0
    return value if isinstance(value, int) and 0 < value < 2**53 else 0
