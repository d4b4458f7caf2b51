"""Tools that the model may call, and the policy applied to them.

A new tool is a function in `builtin_tools.py` that returns a `Tool`, and its line in `builtin_tools()`. A tool that
reads or writes data which outlives the conversation is also listed in `agent.MEMORY_TOOLS`, which incognito turns leave
out.

Verdicts on tool ability, stored in a file of the home by endpoint and model.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.errors import HermesError
from hermes.events import TurnEvent
from hermes.files import read_file, replace_file
from hermes.llm.tool_use import ToolVerdict
from hermes.types import Json, ToolCall, ToolSpec

MAX_PROGRESS_CHARS = 200


class ToolResult(Struct, frozen=True):
    """The result of a tool: text for the model, and events for the person."""

    text: str
    ok: bool = True
    events: tuple[TurnEvent, ...] = ()


PROGRESS: ContextVar[Callable[[str], None] | None] = ContextVar("progress", default=None)
"""Receives progress lines of the running tool; None if nobody shows them."""


def tell_progress(text: str) -> None:
    """Show the person a line about the running tool's progress, if someone is watching."""
    if (tell := PROGRESS.get()) is not None:
        tell(" ".join(text.split())[:MAX_PROGRESS_CHARS])


class Tool(Struct, frozen=True):
    """A tool. `run` may raise a HermesError, whose text becomes the result."""

    spec: ToolSpec
    run: Callable[[Mapping[str, Json]], Awaitable[ToolResult]]


class Toolbox:
    """The tools of one agent. Tools in `off` are neither offered nor callable. `offered` is False for a model that
    cannot use tools."""

    def __init__(self, tools: Iterable[Tool], *, off: Iterable[str] = (), offered: bool = True) -> None:
        hidden, known = frozenset(off), list(tools)
        self.names = frozenset(tool.spec.name for tool in known)
        """Names of all tools, offered or not: a call of one that is written as text is never shown as a reply."""
        self._tools = {tool.spec.name: tool for tool in known if offered and tool.spec.name not in hidden}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    async def call(self, call: ToolCall) -> ToolResult:
        """Run one call. If it cannot be run, the result says why."""
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
        except Exception as error:  # noqa: BLE001 - one tool's defect must not end the turn; it becomes a result
            return ToolResult(f"{call.name} failed: {type(error).__name__}: {error}", ok=False)


def _needed(spec: ToolSpec) -> list[str]:
    """Return the required arguments that have no default."""
    known = spec.parameters.get("properties", {})
    return [name for name in spec.parameters.get("required", ()) if "default" not in known.get(name, {})]


def text_argument(arguments: Mapping[str, Json], name: str) -> str:
    """Return an argument as text; "" if it is missing."""
    value = arguments.get(name)
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


log = logging.getLogger("hermes.agent")

MAX_VERDICTS = 200
"""Older verdicts are dropped."""
MAX_FILE_BYTES = 1_000_000


class ToolVerdicts:
    """The file of verdicts. If it cannot be read, models are tested again; if it cannot be written, verdicts last for
    the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unwritten: dict[tuple[str, str], ToolVerdict] = {}

    def get(self, endpoint: str, name: str) -> ToolVerdict | None:
        return self._unwritten.get((endpoint, name)) or self._read().get(endpoint, {}).get(name)

    def last(self, endpoint: str) -> str:
        found = self._read().get(endpoint, {})
        return max(found, key=lambda name: found[name].tested_at, default="")

    def put(self, endpoint: str, name: str, verdict: ToolVerdict) -> None:
        found = [(at, called, one) for at, models in self._read().items() for called, one in models.items()]
        others = [entry for entry in found if entry[:2] != (endpoint, name)]
        newest = sorted(others, key=lambda entry: entry[2].tested_at)[1 - MAX_VERDICTS :]
        known: dict[str, dict[str, ToolVerdict]] = {}
        for at, called, one in [*newest, (endpoint, name, verdict)]:
            known.setdefault(at, {})[called] = one
        self._unwritten.pop((endpoint, name), None)
        try:
            replace_file(self._path, msgspec.json.format(msgspec.json.encode(known)).decode() + "\n")
        except HermesError as error:
            self._unwritten[endpoint, name] = verdict
            log.warning("what %s can do is not remembered: %s", name, error.line())

    def _read(self) -> dict[str, dict[str, ToolVerdict]]:
        """Read the file at each call: another process may have tested a model."""
        try:
            return msgspec.json.decode(read_file(self._path, MAX_FILE_BYTES), type=dict[str, dict[str, ToolVerdict]])
        except (OSError, msgspec.DecodeError):
            return {}
