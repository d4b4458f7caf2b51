"""The tool `session_search`: a search in all messages that memory may use."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from hermes.agent.tools import Tool, ToolResult, text_argument
from hermes.db.engine import Tx
from hermes.fence import fence
from hermes.memory.corrections import Corrections
from hermes.scope import Scope
from hermes.store.search import HistoryHit
from hermes.store.store import Store
from hermes.types import Json, ToolSpec

SEARCH_SPEC = ToolSpec(
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
MAX_HITS = 20
MAX_SKIPPED_HITS = 10
"""Hits of the running turn that may be skipped: its question, and the texts before its tool calls."""
SPEAKERS = ("user", "assistant")


def session_search_tool(store: Store, scope: Scope, session_id: str | None = None) -> Tool:
    """Return the tool, limited to `scope` whatever the model asks for. Messages of the running turn are skipped: they
    contain the words searched for, and the model has them already."""

    def look(tx: Tx, query: str, max_hits: int) -> list[HistoryHit]:
        hits = store.search.related(tx, query, scope, limit=max_hits + MAX_SKIPPED_HITS, roles=SPEAKERS)
        asked = store.messages.last_said(tx, session_id) if session_id is not None else 0
        return [hit for hit in hits if hit.message.session_id != session_id or hit.message.id < asked][:max_hits]

    async def run(arguments: Mapping[str, Json]) -> ToolResult:
        query = text_argument(arguments, "query")
        limit = arguments.get("limit")
        max_hits = max(1, min(MAX_HITS, limit)) if isinstance(limit, int) else 5
        await store.index()
        hits = await store.read(lambda tx: look(tx, query, max_hits))
        corrections = await store.read(lambda tx: Corrections.read(tx, scope))
        if not hits:
            return ToolResult(f"Nothing was said about: {query}")
        found = [f"[{_when(hit)}, session {hit.message.session_id}] {hit.message.role}: {hit.snippet}" for hit in hits]
        return ToolResult(fence(corrections.marked("\n".join(found))))

    return Tool(SEARCH_SPEC, run)


def _when(hit: HistoryHit) -> str:
    return f"{datetime.fromtimestamp(hit.message.timestamp, UTC):%Y-%m-%d}"
