"""`hermes sessions delete`: says what will go, asks, and takes all of it."""

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

    found = read_store(host, lambda store, tx: plan_removal(store, tx, store.sessions.find(tx, name).id))
    told = found.told
    if not json:
        say(f"This deletes {describe_removal(found.deletion)}.")
        for provider in told:
            asked = f"{provider} is asked to forget it; `hermes memory outbox list` shows what it cannot."
            stays = f"What {provider} was told of it stays there; --everywhere has it forgotten too."
            say(asked if everywhere else stays)
    agree("Delete it for good?", "deleting", "deleted", yes)

    done = with_store(host, lambda store: remove_session(host, store, found, everywhere=everywhere))
    unasked = done.unasked
    try:
        with_store(host, Store.tidy)
    except StoreError as error:
        note(f"Some of it is in the files until other things take its place: {error.message}")
    if everywhere and told:
        _tell_memory(host, [provider for provider in told if provider not in unasked])
    if json:
        print_json({"deleted": to_builtins(done.deletion), "stays_with": unasked if everywhere else told})
        return
    say("Deleted.")
    for provider in unasked:
        say(f"{provider} takes no wish to forget: what it was told stays there.")


def _tell_memory(host: App, asked: Sequence[str]) -> None:
    """Have the chosen provider forget what it was asked to, now: nobody may talk here again for a long time. Others of
    those that were asked do so when they are chosen again."""
    from hermes.cli.outbox import LANES_AT_ONCE, start_deliverer  # with providers: a list of sessions needs none
    from hermes.owner.memory import OwnMemory

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
