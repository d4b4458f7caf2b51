"""`hermes sessions delete`: says what will go, asks, and takes all of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Annotated

import typer
from msgspec import to_builtins

from hermes.app import App
from hermes.cli.chat_history import take_out
from hermes.cli.dialog import agree
from hermes.cli.output import note, print_json, say, saying
from hermes.cli.start import AsJson, load_app, read_store, with_store, write_store
from hermes.db.engine import Tx
from hermes.db.leases import new_owner
from hermes.errors import StoreError
from hermes.memory.outbox import Outbox
from hermes.scope import TERMINAL
from hermes.store.deletion import Deletion
from hermes.store.memory_rows import providers_of
from hermes.store.store import Store

FORGETTING = 10.0
"""Seconds that memory is told of what it is to forget; the rest is left to the background."""
SessionArgument = Annotated[str, typer.Argument(metavar="SESSION", help="An id, the beginning of one, or a title.")]


def delete_session(
    ctx: typer.Context,
    name: SessionArgument,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    everywhere: Annotated[bool, typer.Option("--everywhere", help="Memory providers forget it too.")] = False,
    json: AsJson = False,
) -> None:
    """Delete a session with its messages, snapshots, queued work and search entries. Says first what will go."""
    host = load_app(ctx)

    def plan(store: Store, tx: Tx) -> tuple[Deletion, list[str]]:
        planned = store.deletions.plan(tx, store.sessions.find(tx, name).id)
        told = {provider for key in planned.session_ids for provider in providers_of(tx, key)}
        return planned, sorted(told)

    planned, told = read_store(host, plan)
    if not json:
        say(f"This deletes {_describe(planned)}.")
        for provider in told:
            asked = f"{provider} is asked to forget it; `hermes memory outbox list` shows what it cannot."
            stays = f"What {provider} was told of it stays there; --everywhere has it forgotten too."
            say(asked if everywhere else stays)
    agree("Delete it for good?", "deleting", "deleted", yes)

    def delete(store: Store, tx: Tx) -> tuple[Deletion, list[str], set[str]]:
        unasked = _ask_to_forget(store, tx, planned.session_ids) if everywhere else []
        typed = _typed(store, tx, planned.session_ids)
        return store.deletions.delete(tx, planned.session_ids[-1]), unasked, typed

    done, unasked, typed = write_store(host, delete)
    take_out(host.home.chat_history_file, typed.__contains__)
    try:
        with_store(host, Store.tidy)
    except StoreError as error:
        note(f"Some of it is in the files until other things take its place: {error.message}")
    if everywhere and told:
        _tell_memory(host, [provider for provider in told if provider not in unasked])
    if json:
        print_json({"deleted": to_builtins(done), "stays_with": unasked if everywhere else told})
        return
    say("Deleted.")
    for provider in unasked:
        say(f"{provider} takes no wish to forget: what it was told stays there.")


def _tell_memory(host: App, asked: Sequence[str]) -> None:
    """Have the chosen provider forget what it was asked to, now: nobody may talk here again for a long time. Others of
    those that were asked do so when they are chosen again."""
    from hermes.cli.outbox import LANES_AT_ONCE, start_deliverer  # with providers: a list of sessions needs none
    from hermes.cli.own_memory import OwnMemory

    async def run(store: Store) -> tuple[str, bool]:
        memory = OwnMemory(host, store, new_owner(), lanes=LANES_AT_ONCE)
        memory.start_deliveries()
        return memory.provider.name if memory.provider else "", await memory.finish(FORGETTING)

    with saying("Telling memory to forget it; its server may have to be started first"):
        chosen, all_told = with_store(host, run)
    for provider in asked:
        if provider != chosen:
            note(f"{provider} is not the chosen memory provider: it forgets it when it is chosen again.")
    if not all_told:
        start_deliverer(host)
        note("Memory forgets it as soon as it can be reached; `hermes memory outbox list` shows what waits.")


def _typed(store: Store, tx: Tx, session_ids: Sequence[str]) -> set[str]:
    """What was typed at terminals in these sessions."""
    terminal = [key for key in session_ids if store.sessions.get(tx, key).source == TERMINAL]
    said = chain.from_iterable(store.messages.with_undone(tx, key) for key in terminal)
    return {message.content.strip() for message in said if message.role == "user" and message.content}


def _ask_to_forget(store: Store, tx: Tx, session_ids: Sequence[str]) -> list[str]:
    """Have providers forget sessions that are about to be deleted. Returns those that do not take such a wish."""
    now, unasked = store.clock.now(), set[str]()
    for key in session_ids:
        unasked |= {provider for provider in providers_of(tx, key) if not Outbox(provider).forget(tx, key, now=now)}
    return sorted(unasked)


def _describe(planned: Deletion) -> str:
    rotated = f" (and {len(planned.session_ids) - 1} that it continues)" if len(planned.session_ids) > 1 else ""
    counts = (
        (planned.messages, "message", "messages"),
        (planned.snapshots, "snapshot", "snapshots"),
        (planned.queued, "task that still waits", "tasks that still wait"),
        (planned.routes, "chat that leads to it", "chats that lead to it"),
    )
    parts = [f"{count} {one if count == 1 else several}" for count, one, several in counts if count]
    return f"session {planned.session_ids[-1]}{rotated}: {', '.join(parts) or 'no messages'}"
