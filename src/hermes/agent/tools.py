"""Tools: what the model may call, and the policy that is applied after every tool was added.

A new tool is a function in `agent/…_tool.py` that makes a `Tool`, and its line in `builtin_tools`. One that
reads or writes what outlasts a conversation is also named in `agent.MEMORY_TOOLS`: an incognito turn does without it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar

from msgspec import Struct

from hermes.errors import HermesError
from hermes.events import TurnEvent
from hermes.types import Json, ToolCall, ToolSpec

LONGEST_PROGRESS = 200


class ToolResult(Struct, frozen=True):
    """What a tool gives back: text for the model, and events for the person."""

    text: str
    ok: bool = True
    events: tuple[TurnEvent, ...] = ()


PROGRESS: ContextVar[Callable[[str], None] | None] = ContextVar("progress", default=None)
"""Whom the tool that runs now may tell what it does, in one line."""


def tell_progress(text: str) -> None:
    """Let the person see what the running tool does; nothing happens when nobody looks."""
    if (tell := PROGRESS.get()) is not None:
        tell(" ".join(text.split())[:LONGEST_PROGRESS])


class Tool(Struct, frozen=True):
    """One tool. `run` may raise a HermesError; the model is told what it says."""

    spec: ToolSpec
    run: Callable[[Mapping[str, Json]], Awaitable[ToolResult]]


class Toolbox:
    """The tools of one agent. What the policy switches off is neither offered nor callable, and a model that cannot use
    tools is `offered` none."""

    def __init__(self, tools: Iterable[Tool], *, off: Iterable[str] = (), offered: bool = True) -> None:
        hidden, known = frozenset(off), list(tools)
        self.names = frozenset(tool.spec.name for tool in known)
        """Also of those that are not offered: a call of one, written as text, is no reply."""
        self._tools = {tool.spec.name: tool for tool in known if offered and tool.spec.name not in hidden}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    async def call(self, call: ToolCall) -> ToolResult:
        """Run one call. A call that cannot be run gives a result that says why."""
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return ToolResult(f"There is no tool '{call.name}'. Known tools: {known}.", ok=False)
        try:
            arguments = json.loads(call.arguments or "{}")
        except ValueError as error:
            return ToolResult(f"The arguments of {call.name} are not valid JSON ({error}). Send them again.", ok=False)
        except RecursionError:
            return ToolResult(f"The arguments of {call.name} are nested too deeply. Send them again.", ok=False)
        if not isinstance(arguments, dict):
            return ToolResult(f"The arguments of {call.name} must be a JSON object.", ok=False)
        missing = [name for name in _needed(tool.spec) if name not in arguments]
        if missing:
            return ToolResult(f"{call.name} needs {', '.join(missing)}.", ok=False)
        try:
            return await tool.run(arguments)
        except HermesError as error:
            return ToolResult(f"{call.name} failed: {error.line()}", ok=False)
        except Exception as error:  # noqa: BLE001 - one tool's defect must not end the turn; the model and the person hear of it
            return ToolResult(f"{call.name} failed: {type(error).__name__}: {error}", ok=False)


def _needed(spec: ToolSpec) -> list[str]:
    """What a call cannot do without: what is required and has no default."""
    known = spec.parameters.get("properties", {})
    return [name for name in spec.parameters.get("required", ()) if "default" not in known.get(name, {})]


def text_argument(arguments: Mapping[str, Json], name: str) -> str:
    """An argument as text; "" when it is not there."""
    value = arguments.get(name)
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
