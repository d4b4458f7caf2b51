"""The built-in tools of every agent, one line each in `builtin_tools`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from hermes.agent.agent import Agent
from hermes.agent.delegate_tool import delegate_tool
from hermes.agent.memory_tool import memory_tool
from hermes.agent.session_search import session_search_tool
from hermes.agent.tools import Tool, ToolResult
from hermes.fence import fence
from hermes.memory.notes import FILES, Notes
from hermes.types import Json, ToolSpec

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
