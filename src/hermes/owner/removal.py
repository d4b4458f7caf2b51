"""Deletion of a session with everything that belongs to it: a preview, then the deletion, including typed input."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from msgspec import Struct

from hermes.app import App
from hermes.db.engine import Tx
from hermes.memory.outbox import Outbox
from hermes.owner.typed import remove_typed
from hermes.scope import TERMINAL
from hermes.store.deletion import Deletion
from hermes.store.memory_rows import providers_of
from hermes.store.store import Store


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
