"""The memory that a question may read, and the tools with which a model reads more of it, within the same bounds: the
same views, the same sessions, the same speaker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes.memory_server import times
from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.matching import holds_text
from hermes.memory_server.db.tables import conclusions, messages, sessions
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.embedder import SearchQuestion
from hermes.memory_server.engine.conclusions import message_ids, select_conclusions
from hermes.memory_server.engine.dialectic import asks_for_all, find_general_conclusions, read_cards
from hermes.memory_server.engine.messages import find_messages, select_messages
from hermes.memory_server.engine.quotes import SourceLine, keep_own, quote_card, quote_rows
from hermes.memory_server.engine.recall import View, query_views
from hermes.memory_server.engine.search import PERSPECTIVE, find_hits, find_listener, heard_by
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.faults import Invalid
from hermes.ranking.traits import only_asks
from hermes.types import ToolSpec

MAX_TOOL_LINES = 20
"""The number of lines that one tool call returns."""
MESSAGES_PER_SIDE = 3
"""The number of messages before and after a message that are shown with it."""
MAX_HISTORY_MESSAGES = 20
"""The number of newest messages of the session that are read with a question."""


@dataclass(frozen=True, slots=True)
class ReadingBounds:
    """The views and the search area that a question may read. `filters` limits messages to those that the asker
    heard.
    """

    views: Sequence[View]
    place: SearchArea
    filters: JsonMap | None = None
    session: int | None = None
    """The session in which the question is asked."""
    listener: JsonMap | None = None
    """Like `filters`, for messages of others in that session."""


class MemoryReader:
    """A reader of memory within bounds. The caller opens the transactions."""

    def __init__(self, index: VectorIndex, bounds: ReadingBounds, *, hears_guests: bool) -> None:
        self._index = index
        self._hears_guests = hears_guests
        self.bounds = bounds

    def allow(self, tx: Tx, quotes: Sequence[SourceLine]) -> list[SourceLine]:
        """Return the lines that the model may get."""
        if self._hears_guests:
            return list(quotes)
        return keep_own(tx, quotes, is_of_one=self.bounds.place.peer is not None)

    def prefetch(self, tx: Tx, question: SearchQuestion, width: int) -> list[SourceLine]:
        """Return the nearest conclusions and messages, even unlikely ones; for a question about a person as a whole
        also the card and general conclusions.
        """
        bounds = self.bounds
        card: list[str] = []
        held: list[Record] = []
        if asks_for_all(tx, bounds.place.workspace_id, question.text):
            card = read_cards(tx, bounds.views)
            held = list(find_general_conclusions(tx, self._index, bounds.views, question, width))
        near = query_views(tx, self._index, bounds.views, question, width, None)
        here = [] if bounds.session is None else self._select(tx, messages.c.session_id == bounds.session)
        concluded = _once([*near, *held])
        found = _once([*here, *self._search(tx, question, None, width)])
        said = [row for row in found if not any(row.content in one.content for one in concluded)]
        return [*map(quote_card, card), *quote_rows(concluded, said)]

    def history(self, tx: Tx) -> list[str]:
        """Return recent messages of others in the session of the question, as context that sentences cannot cite."""
        if self.bounds.session is None:
            return []
        own = self.bounds.place.peer
        query = select_messages().where(messages.c.session_id == self.bounds.session, sessions.c.is_active.is_(True))
        query = (
            query.where(*self._heard(tx, self.bounds.listener))
            .order_by(messages.c.seq.desc())
            .limit(MAX_HISTORY_MESSAGES)
        )
        rows = [row for row in tx.execute(query).all() if own is not None and row.peer_id != own]
        return [quote.text for quote in self.allow(tx, quote_rows((), reversed(rows)))]

    def search_memory(self, tx: Tx, question: SearchQuestion, _given: JsonMap) -> list[SourceLine]:
        return quote_rows(query_views(tx, self._index, self.bounds.views, question, MAX_TOOL_LINES, None), ())

    def search_messages(self, tx: Tx, question: SearchQuestion, given: JsonMap) -> list[SourceLine]:
        return quote_rows((), self._search(tx, question, _between(given), MAX_TOOL_LINES))

    def list_messages(self, tx: Tx, given: JsonMap) -> list[SourceLine]:
        """Return messages of a period, or that contain a text, the oldest first."""
        bounds = [messages.c.created_at >= at for at in [_time(given, "after_date")] if at is not None]
        bounds += [messages.c.created_at < at for at in [_time(given, "before_date")] if at is not None]
        if "text" in given:
            bounds.append(holds_text(messages.c.content, str(given["text"])[:200]))
        if not bounds:
            raise Invalid("give after_date or before_date")
        return quote_rows((), reversed(self._select(tx, *bounds, limit=MAX_TOOL_LINES)))

    def read_around(self, tx: Tx, quote: SourceLine) -> list[SourceLine]:
        """Return the messages around a message, or around those that a conclusion comes from."""
        assert quote.row is not None
        ids = [quote.row.id] if quote.kind == "said" else message_ids(tx, [quote.row.id])[:MESSAGES_PER_SIDE]
        found: list[Record] = []
        for row in find_messages(tx, ids):
            near = messages.c.seq.between(row.seq - MESSAGES_PER_SIDE, row.seq + MESSAGES_PER_SIDE)
            found += reversed(self._select(tx, messages.c.session_id == row.session_id, near, limit=MAX_TOOL_LINES))
        return quote_rows((), _once(found))

    def read_chain(self, tx: Tx, quote: SourceLine) -> list[SourceLine]:
        """Return the premises and messages that a conclusion comes from."""
        row = quote.row
        assert row is not None
        if quote.kind == "said":
            return []
        sources = json.loads(row.source_ids or "[]")[:MAX_TOOL_LINES]
        own = (conclusions.c.collection_id == row.collection_id, conclusions.c.public_id.in_(sources))
        drawn = tx.execute(select_conclusions().where(*own)).all() if sources else []
        linked = messages.c.id.in_(message_ids(tx, [row.id])[:MAX_TOOL_LINES])
        return quote_rows(drawn, self._select(tx, linked, limit=MAX_TOOL_LINES))

    def _search(self, tx: Tx, question: SearchQuestion, dates: JsonMap | None, limit: int) -> list[Record]:
        filters = {**(self.bounds.filters or {}), **(dates or {})}
        hits = find_hits(tx, self._index, self.bounds.place, question, filters or None, limit)
        return [hit.row for hit in hits if not only_asks(hit.row.content)]

    def _select(self, tx: Tx, *where: Any, limit: int = MAX_HISTORY_MESSAGES) -> list[Record]:
        """Return the newest messages within bounds that match, the newest first."""
        place = self.bounds.place
        query = select_messages().where(messages.c.workspace_id == place.workspace_id, sessions.c.is_active.is_(True))
        if place.sessions is not None:
            query = query.where(messages.c.session_id.in_(place.sessions))
        if place.peer is not None:
            query = query.where(messages.c.peer_id == place.peer)
        query = query.where(*where, *self._heard(tx, self.bounds.filters)).order_by(
            messages.c.created_at.desc(), messages.c.id.desc()
        )
        return [row for row in tx.execute(query.limit(limit)).all() if not only_asks(row.content)]

    def _heard(self, tx: Tx, filters: JsonMap | None) -> list[Any]:
        listener = find_listener(tx, self.bounds.place.workspace_id, (filters or {}).get(PERSPECTIVE))
        return [] if listener is None else [heard_by(listener)]


def _once(rows: Sequence[Record]) -> list[Record]:
    """Return the first row of each text."""
    once: dict[str, Record] = {}
    for row in rows:
        once.setdefault(row.content, row)
    return list(once.values())


def _between(given: JsonMap) -> JsonMap | None:
    bounds = {"gte": _time(given, "after_date"), "lt": _time(given, "before_date")}
    dates = {name: times.to_wire(at) for name, at in bounds.items() if at is not None}
    return {"created_at": dates} if dates else None


def _time(given: JsonMap, name: str) -> int | None:
    return times.parse(str(given[name])[:40]) if given.get(name) else None


def _tool(name: str, description: str, required: Sequence[str] = (), **properties: str) -> ToolSpec:
    kinds = {
        key: {"type": "integer" if key == "line" else "string", "description": why} for key, why in properties.items()
    }
    return ToolSpec(name, description, {"type": "object", "properties": kinds, "required": list(required)})


QUERY, AFTER, BEFORE = "what to look for", "a date such as 2026-05-01", "a date; that day is not included"
LINE = "the number of a line"
TOOLS: Mapping[str, ToolSpec] = {
    tool.name: tool
    for tool in (
        _tool("search_memory", "Find conclusions by meaning.", ["query"], query=QUERY),
        _tool("search_messages", "Find messages by words and meaning.", ["query"], query=QUERY),
        _tool("get_observation_context", "Read what was said around a line.", ["line"], line=LINE),
        _tool("grep_messages", "Find messages that hold this very text.", ["text"], text="the text"),
        _tool("get_messages_by_date_range", "Read messages of a time.", after_date=AFTER, before_date=BEFORE),
        _tool(
            "search_messages_temporal", "Find messages of a time by words and meaning.", ["query"],
            query=QUERY, after_date=AFTER, before_date=BEFORE,
        ),
        _tool("get_reasoning_chain", "Read what a conclusion was drawn from.", ["line"], line=LINE),
    )
}  # fmt: skip
SEARCHING: Mapping[str, Callable[[MemoryReader, Tx, SearchQuestion, JsonMap], list[SourceLine]]] = {
    "search_memory": MemoryReader.search_memory,
    "search_messages": lambda reader, tx, question, _: reader.search_messages(tx, question, {}),
    "search_messages_temporal": MemoryReader.search_messages,
}
LISTING: Mapping[str, Callable[[MemoryReader, Tx, JsonMap], list[SourceLine]]] = {
    "grep_messages": MemoryReader.list_messages,
    "get_messages_by_date_range": MemoryReader.list_messages,
}
FOLLOWING: Mapping[str, Callable[[MemoryReader, Tx, SourceLine], list[SourceLine]]] = {
    "get_observation_context": MemoryReader.read_around,
    "get_reasoning_chain": MemoryReader.read_chain,
}
