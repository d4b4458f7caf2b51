"""A session's view in wire shape, kept between requests: only what is new is read and written out again."""

from __future__ import annotations

import sys
from collections import OrderedDict
from itertools import chain

from msgspec import Struct, field

from hermes.agent.context import (
    Waiting,
    open_context,
    put_recalled,
    write_all,
    write_interrupted,
    write_messages,
    write_summary,
)
from hermes.compression.cut import message_tokens
from hermes.db.engine import Tx
from hermes.llm.tokens import estimate_request, estimate_tokens
from hermes.store.lines import Mark, Reading
from hermes.store.rewrites import Stamp
from hermes.store.store import Store
from hermes.types import Json

LEAST = 100
"""Lines from which on a view is worth keeping: fewer are read again as fast as it is looked whether they changed."""
LARGEST = 32 * 1024 * 1024
"""Bytes that all kept views may have together, about."""
PER_MESSAGE = 200
PER_CALL = 800
"""Bytes of a message and of a tool call in memory, beside their text."""


class Built(Struct, frozen=True):
    """The messages of a request, and about how many tokens they have."""

    messages: list[dict[str, Json]]
    tokens: int


class Rendering(Struct, frozen=True):
    """What the model is told of a session up to `mark`. Whoever gets a request made of it changes none of its messages.

    `view_tokens` counts the conversation as compression does, `wire_tokens` what is written out; `size` is in bytes.
    """

    mark: Mark
    wire: tuple[dict[str, Json], ...]
    waiting: tuple[Waiting, ...]
    wire_tokens: int
    view_tokens: int
    lines: int
    size: int

    @classmethod
    def of(cls, reading: Reading) -> Rendering:
        """All of a view."""
        waiting: list[Waiting] = []
        wire = [*write_all(reading.head), *write_summary(reading.summary), *write_messages(reading.tail, waiting)]
        nothing = cls(reading.mark, (), (), 0, estimate_tokens(reading.summary or ""), 0, 0)
        return nothing._with(reading, wire, waiting)

    def grown(self, reading: Reading) -> Rendering:
        """The same view with what came since."""
        waiting = list(self.waiting)
        return self._with(reading, list(write_messages(reading.tail, waiting)), waiting)

    def _with(self, reading: Reading, wire: list[dict[str, Json]], waiting: list[Waiting]) -> Rendering:
        return Rendering(
            reading.mark,
            (*self.wire, *wire),
            tuple(waiting),
            self.wire_tokens + estimate_request(wire),
            self.view_tokens + sum(map(message_tokens, chain(reading.head, reading.tail))),
            self.lines + len(reading.head) + len(reading.tail),
            self.size + sum(map(_size, wire)),
        )

    def request(self, system_prompt: str, recalled: str) -> Built:
        """The messages of a request: those that `build_context` gives for the same view."""
        before, after = open_context(system_prompt), write_interrupted(self.waiting)
        messages = [*before, *self.wire, *after]
        tokens = self.wire_tokens + estimate_request([*before, *after])
        if (place := put_recalled(messages, recalled)) is not None:
            tokens += estimate_request([messages[place]]) - estimate_request([self.wire[place - len(before)]])
        return Built(messages, tokens)


class Renderings(Struct):
    """The renderings of sessions of `least` lines or more, those used last, up to `largest` bytes. It is used in one
    thread alone.

    Nothing of it is trusted: before one is used again the store says whether it still holds.
    """

    largest: int = LARGEST
    least: int = LEAST
    _kept: OrderedDict[str, Rendering] = field(default_factory=OrderedDict)
    """The longest unused first."""
    _size: int = 0

    async def current(self, store: Store, session_id: str, stamp: Stamp) -> Rendering:
        """What the model is told of a session now. `stamp` is of now or earlier."""
        known = self._kept.get(session_id)
        found = stamp if known is None else await store.look(lambda tx: _read_on(store, tx, known))
        if isinstance(found, Stamp):
            self.forget(session_id)
            since = found
            found = await store.read(lambda tx: Rendering.of(store.lines.whole(tx, session_id, since)))
        self._keep(found)
        return found

    def forget(self, session_id: str) -> None:
        """Let go what is kept of a session."""
        if (gone := self._kept.pop(session_id, None)) is not None:
            self._size -= gone.size

    def _keep(self, rendering: Rendering) -> None:
        self.forget(rendering.mark.session_id)
        if rendering.lines < self.least or rendering.size > self.largest:
            return
        self._kept[rendering.mark.session_id] = rendering
        self._size += rendering.size
        while self._size > self.largest:
            self.forget(next(iter(self._kept)))


def _read_on(store: Store, tx: Tx, known: Rendering) -> Rendering | Stamp:
    found = store.lines.since(tx, known.mark)
    return known.grown(found) if isinstance(found, Reading) else found


def _size(message: dict[str, Json]) -> int:
    calls = message.get("tool_calls", ())
    written = sum(PER_CALL + len(call["function"]["arguments"]) for call in calls)
    return PER_MESSAGE + sys.getsizeof(message["content"]) + written
