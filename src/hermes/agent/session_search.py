"""The tool `session_search`, and what the offline floor answers from: everything said before that memory may know."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from hermes.agent.tools import Tool, ToolResult, text_argument
from hermes.db.engine import Tx
from hermes.fence import fence
from hermes.llm.floor import is_asking
from hermes.memory.corrections import Corrections
from hermes.memory.notes import Notes
from hermes.ranking.words import split_words, telling_words
from hermes.scope import Scope
from hermes.store.search import HistoryHit
from hermes.store.store import Store
from hermes.types import Json, ToolSpec

SPEC = ToolSpec(
    "session_search",
    "Search everything that was said in earlier conversations: a question, a few telling words, a name or a date.",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 20, "default": 5},
        },
        "required": ["query"],
    },
)
MOST = 20
UNDER_WAY = 10
"""Hits of the running turn that are passed over at most: a question, and what was said before each call of a tool."""
SPEAKERS = ("user", "assistant")
LIMITS = (12, 100, 5_000)
"""Among how many hits the floor looks for what is not a question: first few, then more."""


def session_search_tool(store: Store, scope: Scope, session_id: str | None = None) -> Tool:
    """The tool over what `scope` reaches of this store, whatever the model asks for. The message that is being answered
    in a session is not found: it has the words that are looked for, and the model has it."""

    def look(tx: Tx, query: str, most: int) -> list[HistoryHit]:
        hits = store.search.related(tx, query, scope, limit=most + UNDER_WAY, roles=SPEAKERS)
        asked = store.messages.last_said(tx, session_id) if session_id is not None else 0
        return [hit for hit in hits if hit.message.session_id != session_id or hit.message.id < asked][:most]

    async def run(arguments: Mapping[str, Json]) -> ToolResult:
        query = text_argument(arguments, "query")
        limit = arguments.get("limit")
        most = max(1, min(MOST, limit)) if isinstance(limit, int) else 5
        await store.index()
        hits = await store.read(lambda tx: look(tx, query, most))
        corrections = await store.read(lambda tx: Corrections.read(tx, scope))
        if not hits:
            return ToolResult(f"Nothing was said about: {query}")
        found = [f"[{_when(hit)}, session {hit.message.session_id}] {hit.message.role}: {hit.snippet}" for hit in hits]
        return ToolResult(fence(corrections.marked("\n".join(found))))

    return Tool(SPEC, run)


async def recollect(store: Store, notes: Notes, question: str, limit: int = 3) -> list[str]:
    """What is known about a question, best first: entries of the notes, then what the person said before. It reaches as
    far as the notes do."""
    words = [word.rstrip("*") for word in telling_words(split_words(question))]
    noted = [
        line.lstrip("- ").strip()
        for text in _texts(notes)
        for line in text.splitlines()
        if any(word in line.lower() for word in words)
    ]
    await store.index()
    corrections = await store.read(lambda tx: Corrections.read(tx, notes.scope))
    told = [corrections.replaced(text) for text in await _told(store, notes.scope, question, limit)]
    return list(dict.fromkeys([*noted, *told]))[:limit]


def _texts(notes: Notes) -> list[str]:
    """The notes, who the person is first. One that cannot be read is told by the turn itself."""
    texts = notes.read_all().texts
    return [texts[target] for target in ("user", "memory") if target in texts]


async def _told(store: Store, scope: Scope, question: str, wanted: int) -> list[str]:
    """What the person told before, best first. However often a question was asked, it does not crowd this out."""

    def look(tx: Tx) -> list[str]:
        told: list[str] = []
        for limit in LIMITS:
            hits = store.search.related(tx, question, scope, limit=limit, roles=("user",))
            said = dict.fromkeys((hit.message.content or "").strip() for hit in hits)
            told = [text for text in said if text and not is_asking(text)]
            if len(told) >= wanted or len(hits) < limit:
                break
        return told

    return await store.read(look)


def _when(hit: HistoryHit) -> str:
    return f"{datetime.fromtimestamp(hit.message.timestamp, UTC):%Y-%m-%d}"
