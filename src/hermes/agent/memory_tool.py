"""The tool `memory`: the agent changes its built-in notes, and the person is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal

from hermes.agent.tools import Tool, ToolResult, text_argument
from hermes.errors import NoteError
from hermes.events import MemoryUpdated
from hermes.memory.notes import FILES, Change, Notes, Target
from hermes.types import Json, ToolSpec

Mirror = Callable[[Target, Literal["add", "replace", "remove"], str], None]

TARGETS: dict[str, Target] = {target: target for target in FILES}

SPEC = ToolSpec(
    "memory",
    "Keep a lasting note, change one, or remove one. Target `user` is for who the person is and what they prefer, "
    "target `memory` for everything else worth knowing later.",
    {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["add", "replace", "remove"]},
            "target": {"type": "string", "enum": ["memory", "user"]},
            "content": {"type": "string", "description": "The new entry, one short sentence (add, replace)."},
            "old_text": {"type": "string", "description": "A part of the entry to change (replace, remove)."},
        },
        "required": ["action", "target"],
    },
)


def memory_tool(notes: Notes, mirror: Mirror) -> Tool:
    """The tool for these notes; `mirror` is told of every change, after it was saved."""

    def tell(changed: asyncio.Task[Change]) -> None:
        if not changed.cancelled() and changed.exception() is None:
            mirror(changed.result().target, changed.result().action, changed.result().text)

    async def run(arguments: Mapping[str, Json]) -> ToolResult:
        changing = asyncio.create_task(asyncio.to_thread(_change, notes, arguments))
        changing.add_done_callback(tell)
        change = await asyncio.shield(changing)  # a thread goes on when we are cancelled; what it saves is mirrored
        used = f"{change.used} of {change.limit} characters used"
        return ToolResult(
            f"Saved in {FILES[change.target]} ({used}).",
            events=(MemoryUpdated(change.target, change.action, change.text),),
        )

    return Tool(SPEC, run)


def _change(notes: Notes, arguments: Mapping[str, Json]) -> Change:
    where = TARGETS.get(text_argument(arguments, "target"))
    if where is None:
        raise NoteError(f"there is no target {arguments.get('target')!r}", hint="Use memory or user")
    content, old = text_argument(arguments, "content"), text_argument(arguments, "old_text")
    action = text_argument(arguments, "action")
    if action in ("replace", "remove") and not old.strip():
        raise NoteError(f"{action} needs old_text", hint="To keep something new, use action add")
    match action:
        case "add":
            return notes.add(where, content)
        case "replace":
            return notes.replace(where, old, content)
        case "remove":
            return notes.remove(where, old)
        case other:
            raise NoteError(f"there is no action '{other}'", hint="Use add, replace or remove")
