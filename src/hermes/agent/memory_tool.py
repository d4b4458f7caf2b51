"""The tool `memory`: the agent changes its built-in notes, and the person sees each change.

The tool `memory` with corrections applied: facts that a person corrected or forgot are not noted again, unless the
person repeats them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.agent import Agent
from hermes.agent.tools import Tool, ToolResult, text_argument
from hermes.errors import NoteError
from hermes.events import MemoryUpdated
from hermes.memory.corrections import Corrections
from hermes.memory.likeness import fact_words
from hermes.memory.notes import FILES, Change, Notes, NotesFile
from hermes.store.corrections import Correction, drop_correction
from hermes.types import Json, ToolSpec

Mirror = Callable[[NotesFile, Literal["add", "replace", "remove"], str], None]

TARGETS: dict[str, NotesFile] = {target: target for target in FILES}

SPEC = ToolSpec(
    "memory",
    "Keep a lasting note, change one, or remove one. Target `user` is for who the person is and what they prefer, "
    "target `memory` for everything else worth knowing later. To keep something new, give action `add` and content.",
    {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["add", "replace", "remove"], "default": "add"},
            "target": {"type": "string", "enum": ["user", "memory"], "default": "user"},
            "content": {"type": "string", "description": "The new entry, one short sentence (add, replace)."},
            "old_text": {"type": "string", "description": "A part of the entry to change (replace, remove)."},
        },
        "required": ["action", "target"],
    },
)


RESULT_PREFIXES: dict[Literal["add", "replace", "remove"], str] = {
    "add": "Noted in",
    "replace": "Changed in",
    "remove": "Removed from",
}
"""The first words of a result, by action."""
RESULT_PATTERN = re.compile(
    rf"({'|'.join(RESULT_PREFIXES.values())}) ({'|'.join(re.escape(name) for name in FILES.values())}): (.+)"
)


class NoteDone(Struct, frozen=True):
    """A change of a note, read from a tool result. `text` is the entry that was added, changed to, or removed."""

    target: NotesFile
    action: Literal["add", "replace", "remove"]
    text: str


def read_result(result: str) -> NoteDone | None:
    """Read a change from a tool result; None if the call changed nothing."""
    found = RESULT_PATTERN.match(result)
    if found is None:
        return None
    target = next(key for key, name in FILES.items() if name == found[2])
    return NoteDone(target, next(action for action, word in RESULT_PREFIXES.items() if word == found[1]), found[3])


def memory_tool(notes: Notes, mirror: Mirror) -> Tool:
    """Return the tool for these notes. `mirror` is called after each saved change.

    It accepts what small models send: a missing action or target, `replace` without an entry to replace (which adds),
    and entries that are already noted. The result quotes the note as it now stands.
    """

    def report(changed: asyncio.Task[Change]) -> None:
        if not changed.cancelled() and changed.exception() is None and changed.result().is_new:
            mirror(changed.result().target, changed.result().action, changed.result().text)

    async def run(arguments: Mapping[str, Json]) -> ToolResult:
        where = _target(arguments)
        changing = asyncio.create_task(asyncio.to_thread(_change, notes, where, arguments))
        changing.add_done_callback(report)
        try:
            change = await asyncio.shield(changing)  # the thread outlives a cancellation; its change is still mirrored
        except NoteError as error:
            return ToolResult(f"{SPEC.name} failed: {error.line()}\n{_now(notes, where)}", ok=False)
        done = f"{RESULT_PREFIXES[change.action]} {FILES[where]}" if change.is_new else "That is noted already"
        used = f"{change.used} of {change.limit} characters used"
        updated = (MemoryUpdated(where, change.action, change.text),) if change.is_new else ()
        return ToolResult(f"{done}: {change.text}\n{_now(notes, change.target)}\n({used})", events=updated)

    return Tool(SPEC, run)


def _now(notes: Notes, target: NotesFile) -> str:
    return f"{FILES[target]} says now:\n{notes.read(target) or '(nothing)'}"


def _target(arguments: Mapping[str, Json]) -> NotesFile:
    named = text_argument(arguments, "target").strip().lower().removesuffix(".md") or "user"
    where = TARGETS.get(named)
    if where is None:
        raise NoteError(f"there is no target {arguments.get('target')!r}", hint="Use memory or user")
    return where


def _change(notes: Notes, where: NotesFile, arguments: Mapping[str, Json]) -> Change:
    content, old = text_argument(arguments, "content"), text_argument(arguments, "old_text")
    match text_argument(arguments, "action").strip().lower():
        case "remove":
            return notes.remove(where, old if old.strip() else content)
        case "replace":
            return notes.replace(where, old, content)
        case "add" | "":
            return notes.add(where, content)
        case other:
            raise NoteError(f"there is no action '{other}'", hint="Use add, replace or remove")


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
