"""The tool `session_search`: everything said before that memory may know."""

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


def _when(hit: HistoryHit) -> str:
    return f"{datetime.fromtimestamp(hit.message.timestamp, UTC):%Y-%m-%d}"
