"""`hermes sessions delete`: show what will be deleted, ask, and delete it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec import to_builtins

from hermes.app import App
from hermes.cli.dialog import agree
from hermes.cli.output import note, print_json, say, saying
from hermes.cli.start import AsJson, load_app, read_store, with_store
from hermes.db.leases import new_owner
from hermes.errors import StoreError
from hermes.owner.removal import describe_removal, plan_removal, remove_session
from hermes.store.store import Store

FORGET_TIMEOUT_SECONDS = 10.0
"""Time limit for telling memory to forget; a background process does the rest."""
SessionArgument = Annotated[str, typer.Argument(metavar="SESSION", help="An id, the start of an id, or a title.")]


def delete_session(
    ctx: typer.Context,
    name: SessionArgument,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    everywhere: Annotated[bool, typer.Option("--everywhere", help="Have memory providers forget it too.")] = False,
    json: AsJson = False,
) -> None:
    """Delete a session with its messages, snapshots, queued work and search entries. Shows first what will be
    deleted."""
    host = load_app(ctx)

    found = read_store(host, lambda store, tx: plan_removal(store, tx, store.sessions.find(tx, name).id))
    informed = found.told
    if not json:
        say(f"This deletes {describe_removal(found.deletion)}.")
        for provider in informed:
            asked = f"{provider} is asked to forget it; `hermes memory outbox list` shows requests that failed."
            stays = f"Messages synced to {provider} stay there; --everywhere has them forgotten too."
            say(asked if everywhere else stays)
    agree("Delete it for good?", "deleting", "deleted", yes)

    done = with_store(host, lambda store: remove_session(host, store, found, everywhere=everywhere))
    unasked = done.unasked
    try:
        with_store(host, Store.tidy)
    except StoreError as error:
        note(f"Some deleted data remains in the files until it is overwritten: {error.message}")
    if everywhere and informed:
        _deliver_deletion(host, [provider for provider in informed if provider not in unasked])
    if json:
        print_json({"deleted": to_builtins(done.deletion), "stays_with": unasked if everywhere else informed})
        return
    say("Deleted.")
    for provider in unasked:
        say(f"{provider} cannot forget on request: messages synced to it stay there.")


def _deliver_deletion(host: App, asked: Sequence[str]) -> None:
    """Deliver the deletion to the chosen provider now, since no chat may run here for a long time. Other providers
    receive it when they are chosen again."""
    from hermes.cli.outbox import (
        MAX_LANES,
        start_deliverer,
    )  # imported late: other session commands need no providers
    from hermes.owner.memory import OwnMemory

    async def run(store: Store) -> tuple[str, bool]:
        memory = OwnMemory(host, store, new_owner(), lanes=MAX_LANES)
        memory.start_deliveries()
        return memory.provider.name if memory.provider else "", await memory.finish(FORGET_TIMEOUT_SECONDS)

    with saying("Asking memory to forget it; its server may have to start first"):
        chosen, all_synced = with_store(host, run)
    for provider in asked:
        if provider != chosen:
            note(f"{provider} is not the chosen memory provider: it forgets this when it is chosen again.")
    if not all_synced:
        start_deliverer(host)
        note("Memory forgets it once it can be reached; `hermes memory outbox list` shows open requests.")
