"""The tool `delegate`: a sub-agent does one task, as a temporary agent, and the parent gets its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from hermes.agent.agent import TemporaryAgent
from hermes.agent.loop import Speaker
from hermes.agent.tools import Tool, Toolbox, ToolResult, text_argument
from hermes.clock import Clock
from hermes.fence import strip_fences
from hermes.llm.model import Model
from hermes.types import Json, ToolSpec

SPEC = ToolSpec(
    "delegate",
    "Let a sub-agent do one self-contained task and give back its answer. It knows nothing of this conversation: put "
    "everything it needs into the task.",
    {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]},
)
PROMPT = "You are a sub-agent. Do the one task you are given, then answer with the result alone."


def delegate_tool(
    model: Model, tools: Sequence[Tool], clock: Clock, max_steps: int, told: Callable[[str, str], Awaitable[None]]
) -> Tool:
    """The tool; `told` hears of every task that was finished, with its result."""

    async def run(arguments: Mapping[str, Json]) -> ToolResult:
        task = strip_fences(text_argument(arguments, "task"))
        worker = TemporaryAgent(Speaker(model, Toolbox(tools), max_steps), PROMPT)
        outcome = await worker.run(task, now=clock.now())
        if not outcome.ok:
            return ToolResult(f"The sub-agent did not finish: {outcome.text}", ok=False)
        await told(task, outcome.text)
        return ToolResult(outcome.text)

    return Tool(SPEC, run)
