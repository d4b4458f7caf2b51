"""The built-in tools of every agent, one line each in `builtin_tools`.

The tool `delegate`: a sub-agent does one task as a temporary agent, and the parent gets its answer.

The tool `session_search`: a search in all messages that memory may use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime

from hermes.agent.agent import Agent, Policy, TemporaryAgent
from hermes.agent.loop import Responder
from hermes.agent.memory_tool import memory_tool
from hermes.agent.tools import Tool, Toolbox, ToolResult, tell_progress, text_argument
from hermes.clock import Clock
from hermes.db.engine import Tx
from hermes.events import ToolStarted, TurnEvent
from hermes.fence import fence, strip_fences
from hermes.llm.model import Model
from hermes.memory.corrections import Corrections
from hermes.memory.notes import FILES, Notes
from hermes.scope import Scope
from hermes.store.search import HistoryHit
from hermes.store.store import Store
from hermes.types import Json, ToolSpec

DELEGATE_SPEC = ToolSpec(
    "delegate",
    "Let a sub-agent do one self-contained task that takes several searches, and give back its answer. It knows "
    "nothing of this conversation: put everything it needs into the task. It can search earlier conversations and "
    "read the notes, and nothing else.",
    {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]},
)
PROMPT = (
    "You are a sub-agent. Do the one task you are given, then answer with the result alone. When your tools cannot "
    "help with it, say so at once."
)
UNFINISHED = "The sub-agent did not finish"
MAX_RESULT_CHARS = 16_000
"""Limits the answer that the parent sees."""


def delegate_tool(
    model: Model,
    tools: Sequence[Tool],
    clock: Clock,
    policy: Policy,
    on_finished: Callable[[str, str], Awaitable[None]],
) -> Tool:
    """Return the tool. `on_finished` is called with each finished task and its result."""

    async def run(arguments: Mapping[str, Json]) -> ToolResult:
        task = strip_fences(text_argument(arguments, "task"))
        worker = TemporaryAgent(Responder(model, Toolbox(tools), policy.delegate_steps, policy.max_calls), PROMPT)
        try:
            async with asyncio.timeout(policy.delegate_deadline):
                outcome = await worker.run(task, now=clock.now(), on_event=_show)
        except TimeoutError:
            limit = f"{policy.delegate_deadline:g} s (`agent.delegate_timeout`)"
            return ToolResult(f"{UNFINISHED} within {limit}.", ok=False)
        if not outcome.ok:
            return ToolResult(f"{UNFINISHED}: {outcome.text}", ok=False)
        await on_finished(task, outcome.text)
        text = outcome.text
        return ToolResult(text if len(text) <= MAX_RESULT_CHARS else f"{text[:MAX_RESULT_CHARS]} […]")

    return Tool(DELEGATE_SPEC, run)


def _show(event: TurnEvent) -> None:
    if isinstance(event, ToolStarted):
        tell_progress(f"{event.name} {event.arguments}")


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


READ_NOTES = ToolSpec(
    "read_notes",
    "Read the lasting notes: who the person is, what they prefer, and what is worth knowing of their work.",
    {"type": "object", "properties": {}},
)


def builtin_tools(agent: Agent) -> list[Tool]:
    """Return the tools of every agent. A sub-agent gets those that only read."""
    reading = [session_search_tool(agent.store, agent.scope, agent.session_id), read_notes_tool(agent.notes)]
    allowed = [tool for tool in reading if tool.spec.name not in agent.policy.tools_off]
    return [
        memory_tool(agent.notes, agent.memory.note_written),
        reading[0],
        delegate_tool(agent.model, allowed, agent.clock, agent.policy, agent.memory.delegated),
    ]


def read_notes_tool(notes: Notes) -> Tool:
    """Return the tool `read_notes`, for sub-agents, whose prompt has no notes. It changes nothing."""

    async def run(_: Mapping[str, Json]) -> ToolResult:
        read = await asyncio.to_thread(notes.read_all)
        parts = [f"{FILES[target]}:\n{text or '(nothing)'}" for target, text in read.texts.items()]
        return ToolResult(fence("\n\n".join([*parts, *(problem.line() for problem in read.problems)])))

    return Tool(READ_NOTES, run)
