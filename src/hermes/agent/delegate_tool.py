"""The tool `delegate`: a sub-agent does one task as a temporary agent, and the parent gets its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from hermes.agent.agent import Policy, TemporaryAgent
from hermes.agent.loop import Responder
from hermes.agent.tools import Tool, Toolbox, ToolResult, tell_progress, text_argument
from hermes.clock import Clock
from hermes.events import ToolStarted, TurnEvent
from hermes.fence import strip_fences
from hermes.llm.model import Model
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
            return ToolResult(f"The sub-agent did not finish within {limit}.", ok=False)
        if not outcome.ok:
            return ToolResult(f"The sub-agent did not finish: {outcome.text}", ok=False)
        await on_finished(task, outcome.text)
        text = outcome.text
        return ToolResult(text if len(text) <= MAX_RESULT_CHARS else f"{text[:MAX_RESULT_CHARS]} […]")

    return Tool(DELEGATE_SPEC, run)


def _show(event: TurnEvent) -> None:
    if isinstance(event, ToolStarted):
        tell_progress(f"{event.name} {event.arguments}")
