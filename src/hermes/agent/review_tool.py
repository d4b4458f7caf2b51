"""The tool `memory` as a review has it: it adds, changes nothing that is noted, and does not note what is not known."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from hermes.agent.memory_tool import SPEC, Mirror, memory_tool
from hermes.agent.tools import Tool, ToolResult, text_argument
from hermes.memory.notes import Notes
from hermes.types import Json

NOTHING_KNOWN = re.compile(
    r"\b(no|not any|without|lack of|lacks)\b.{0,30}\b(records?|information|mention|data|details|notes?|facts?)\b"
    r"|\b(not|never|n.t)( yet| been)* (mention|specif|provid|state|note|record|share|disclos|known|said|told)"
    r"|\bnothing (\w+ )?(known|noted|recorded|mentioned|to note)\b|\bunknown\b|\bunspecified\b|\bn/a\b",
    re.IGNORECASE,
)
REFUSED = "Not noted: it tells that something is not known. Note only what was said."


def review_tool(notes: Notes, mirror: Mirror) -> Tool:
    """The tool for these notes; `mirror` is told of every change, after it was saved."""
    adding = memory_tool(notes, mirror)
    properties = SPEC.parameters["properties"]
    parameters = {
        "type": "object",
        "properties": {name: properties[name] for name in ("target", "content")},
        "required": ["target", "content"],
    }

    async def run(arguments: Mapping[str, Json]) -> ToolResult:
        if NOTHING_KNOWN.search(text_argument(arguments, "content")):
            return ToolResult(REFUSED, ok=False)
        given = {name: value for name, value in arguments.items() if name in ("target", "content")}
        return await adding.run({**given, "action": "add"})

    return Tool(replace(SPEC, description="Add a lasting note.", parameters=parameters), run)
