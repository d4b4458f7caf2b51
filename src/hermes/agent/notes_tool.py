"""The tool `read_notes`: a sub-agent, which has no notes in its prompt, reads them. It changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from hermes.agent.tools import Tool, ToolResult
from hermes.fence import fence
from hermes.memory.notes import FILES, Notes
from hermes.types import Json, ToolSpec

SPEC = ToolSpec(
    "read_notes",
    "Read the lasting notes: who the person is, what they prefer, and what is worth knowing of their work.",
    {"type": "object", "properties": {}},
)


def read_notes_tool(notes: Notes) -> Tool:
    """The tool over these notes."""

    async def run(_: Mapping[str, Json]) -> ToolResult:
        read = await asyncio.to_thread(notes.read_all)
        parts = [f"{FILES[target]}:\n{text or '(nothing)'}" for target, text in read.texts.items()]
        return ToolResult(fence("\n\n".join([*parts, *(problem.line() for problem in read.problems)])))

    return Tool(SPEC, run)
