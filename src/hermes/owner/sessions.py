"""Input typed at the terminals of a home, as its history file stores it; deleted text is removed from it too.

Deletion of a session with everything that belongs to it: a preview, then the deletion, including typed input.

A session as the model sees it: the parts of a request now, and before and after each compression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.app import App
from hermes.db.engine import Tx
from hermes.errors import HomeError, NotFoundError
from hermes.files import replacing
from hermes.llm.tokens import estimate_tokens, message_tokens, view_tokens
from hermes.memory.outbox import Outbox
from hermes.scope import TERMINAL
from hermes.store.deletion import Deletion
from hermes.store.injections import find_injection
from hermes.store.memory_rows import providers_of
from hermes.store.store import Store
from hermes.types import Compression, LiveView, Message, Session


def remove_typed(path: Path, goes: Callable[[str], bool]) -> int:
    """Remove the entries for which `goes` is true, and return their number. The file is private.

    An entry is a line with its time, followed by lines that begin with a plus.
    """
    try:
        lines = path.read_bytes().decode("utf-8", "replace").split("\n") if path.exists() else []
    except OSError as error:
        raise HomeError(f"cannot read {path}: {error.strerror}", hint="What was typed may still be in it") from error
    blocks = list(_blocks(lines))
    kept = [block for block in blocks if not goes(_entry(block))]
    if taken := len(blocks) - len(kept):
        with replacing(path) as file:
            file.write("\n".join(line for block in kept for line in block))
    return taken


def _entry(block: Iterable[str]) -> str:
    return "\n".join(line[1:] for line in block if line.startswith("+")).strip()


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the lines of each entry, with the lines before it."""
    block: list[str] = []
    for line in lines:
        if not line.startswith("+") and block and block[-1].startswith("+"):
            yield block
            block = []
        block.append(line)
    yield block


class PlannedRemoval(Struct, frozen=True):
    """A planned deletion, and the memory providers that received the session."""

    deletion: Deletion
    told: tuple[str, ...]


class RemovedSession(Struct, frozen=True):
    """A finished deletion, and the providers that cannot be asked to forget."""

    deletion: Deletion
    unasked: tuple[str, ...]


def plan_removal(store: Store, tx: Tx, session_id: str) -> PlannedRemoval:
    """Return what deleting a session would remove. Read-only."""
    planned = store.deletions.plan(tx, session_id)
    told = {provider for key in planned.session_ids for provider in providers_of(tx, key)}
    return PlannedRemoval(planned, tuple(sorted(told)))


async def remove_session(app: App, store: Store, planned: PlannedRemoval, *, everywhere: bool) -> RemovedSession:
    """Delete the planned session and its typed input; with `everywhere`, ask providers to forget it too.

    Text may be in the files until `Store.tidy`."""
    ids = planned.deletion.session_ids

    def delete(tx: Tx) -> tuple[RemovedSession, set[str]]:
        unasked = _ask_to_forget(store, tx, ids) if everywhere else []
        typed = _typed(store, tx, ids)
        return RemovedSession(store.deletions.delete(tx, ids[-1]), tuple(unasked)), typed

    done, typed = await store.write(delete)
    remove_typed(app.home.chat_history_file, typed.__contains__)
    return done


def _typed(store: Store, tx: Tx, session_ids: Sequence[str]) -> set[str]:
    """Return the input typed at terminals in these sessions."""
    terminal = [key for key in session_ids if store.sessions.get(tx, key).source == TERMINAL]
    said = chain.from_iterable(store.messages.with_undone(tx, key) for key in terminal)
    return {message.content.strip() for message in said if message.role == "user" and message.content}


def _ask_to_forget(store: Store, tx: Tx, session_ids: Sequence[str]) -> list[str]:
    """Ask providers to forget sessions before their deletion; return the providers that do not support that."""
    now, unasked = store.clock.now(), set[str]()
    for key in session_ids:
        unasked |= {provider for provider in providers_of(tx, key) if not Outbox(provider).forget(tx, key, now=now)}
    return sorted(unasked)


def describe_removal(planned: Deletion) -> str:
    rotated = f" (and {len(planned.session_ids) - 1} that it continues)" if len(planned.session_ids) > 1 else ""
    counts = (
        (planned.messages, "message", "messages"),
        (planned.snapshots, "snapshot", "snapshots"),
        (planned.queued, "task that still waits", "tasks that still wait"),
        (planned.routes, "chat that leads to it", "chats that lead to it"),
    )
    parts = [f"{count} {one if count == 1 else several}" for count, one, several in counts if count]
    return f"session {planned.session_ids[-1]}{rotated}: {', '.join(parts) or 'no messages'}"


PartName: TypeAlias = Literal["system", "memory", "kept", "summary", "said", "replies", "tools"]


class Snapshot(Struct, frozen=True):
    """One compression: the messages and tokens that the model saw before and after it."""

    id: str
    session_id: str
    created_at: float
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int


class ViewPart(Struct, frozen=True):
    """A part of a request, with its estimated tokens and the number of its stored messages."""

    name: PartName
    tokens: int
    messages: int = 0


def read_snapshot(store: Store, tx: Tx, row: Compression) -> Snapshot:
    before, after = store.compressions.snapshot(tx, row.snapshot_id), store.compressions.swapped(tx, row)
    messages, tokens = (len(before.messages), len(after.messages)), (view_tokens(before), view_tokens(after))
    return Snapshot(row.snapshot_id, row.session_id, row.created_at, *messages, *tokens)


def read_parts(store: Store, tx: Tx, session: Session) -> list[ViewPart]:
    """Return the parts of a session's next request, in order. Tool descriptions are not stored, and so not counted."""
    view = store.compressions.view(tx, session.id)
    found = [
        ViewPart("system", estimate_tokens(session.system_prompt or "")),
        ViewPart("memory", _memory_tokens(store, tx, session.id)),
        ViewPart("kept", sum(map(message_tokens, view.head)), len(view.head)),
        ViewPart("summary", estimate_tokens(view.summary or "")),
        *(_tail_part(view, name) for name in ("said", "replies", "tools")),
    ]
    return [one for one in found if one.tokens]


def _tail_part(view: LiveView, name: PartName) -> ViewPart:
    chosen = [one for one in view.tail if _kind(one) == name]
    return ViewPart(name, sum(map(message_tokens, chosen)), len(chosen))


def _kind(message: Message) -> PartName:
    if message.role == "tool" or message.tool_calls:
        return "tools"
    return "replies" if message.role == "assistant" else "said"


def _memory_tokens(store: Store, tx: Tx, session_id: str) -> int:
    """Return the tokens that memory added to the newest turn; 0 without a record of that turn."""
    try:
        newest = find_injection(tx, session_id)
    except NotFoundError:
        return 0
    is_current = newest.message_id >= store.messages.last_said(tx, session_id)
    return sum(part.tokens for part in newest.parts) if is_current else 0
