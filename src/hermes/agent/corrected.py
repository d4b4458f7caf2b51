"""The tool `memory` with corrections applied: facts that a person corrected or forgot are not noted again, unless the
person repeats them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from hermes.agent.agent import Agent
from hermes.agent.tools import Tool, ToolResult, text_argument
from hermes.memory.corrections import Corrections
from hermes.memory.likeness import fact_words
from hermes.store.corrections import Correction, drop_correction
from hermes.types import Json

REFUSED = "Not noted: the person {}. Do not note it again."
CORRECTIONS_GUIDE = (
    "The person corrected these by hand. What is right holds, whatever notes, summaries, memory or earlier messages "
    "say; what is wrong is never to be noted or told again."
)


def respect_corrections(agent: Agent, tool: Tool, spoken: str = "") -> Tool:
    """Wrap a tool so that it refuses notes that contradict a correction, including corrections made during the turn.
    If the person repeats the old fact in `spoken`, it is noted and the correction is dropped."""

    async def run(arguments: Mapping[str, Json]) -> ToolResult:
        corrections = await agent.store.read(lambda tx: Corrections.read(tx, agent.scope))
        removes = text_argument(arguments, "action").strip().lower() == "remove"
        found = None if removes else corrections.find_repeated(text_argument(arguments, "content"))
        if found is None:
            return await tool.run(arguments)
        if not _is_said(found, text_argument(arguments, "content"), spoken):
            what = f"corrected it to: {found.right}" if found.right else "had it forgotten"
            return ToolResult(REFUSED.format(what), ok=False)
        result = await tool.run(arguments)
        if result.ok:
            await agent.store.write(lambda tx: drop_correction(tx, found.id))
        return result

    return replace(tool, run=run)


def _is_said(found: Correction, content: str, spoken: str) -> bool:
    """Return True if the person's new message contains the words that the correction removed."""
    words = fact_words(content)
    if found.right:
        taken = words & (fact_words(found.wrong) - fact_words(found.right))
    else:
        taken = frozenset(filter(found.is_trace, words))
    return taken <= fact_words(spoken)
