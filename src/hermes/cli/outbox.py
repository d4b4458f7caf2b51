"""`hermes memory outbox`: the queue of unsynced messages, and a process that delivers it."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import typer
from msgspec import to_builtins

from hermes.app import App
from hermes.assembly import open_provider
from hermes.cli.output import note, print_json, print_table, show_time
from hermes.cli.start import AsJson, load_app, read_store, start_home_log, with_store, write_store
from hermes.db.engine import Tx
from hermes.db.leases import new_owner
from hermes.db.queue import FAILED, ItemState
from hermes.db.queue_items import items, queues, stats
from hermes.errors import UsageError
from hermes.memory.deliveries import Deliveries, Left
from hermes.memory.outbox import queue_name
from hermes.memory.registry import NONE_CHOSEN
from hermes.owner.waiting import drop_entries, retry_entries
from hermes.store.held_lease import kept, take, wanted_lease
from hermes.store.store import Store
from hermes.types import Json

log = logging.getLogger("hermes.memory")
LEASE = "memory-deliverer"
LEASE_SECONDS = 90.0
MAX_LANES = 4
STATES: tuple[ItemState, ...] = ("waiting", "dead")
PUT_ASIDE = "put aside"
"""The name of `dead` in JSON, which scripts read."""
DETACHED_PROCESS_CODE = 0x00000008
"""Windows' DETACHED_PROCESS flag: no console."""
POLL_SECONDS = 0.5
STALL_TIMEOUT_SECONDS = 180.0
"""Time without progress after which a deliverer gives up; the next one continues. A provider may check for more than a
minute whether an entry arrived, and so may a lane whose holder was killed."""
app = typer.Typer(
    help="Messages that the memory provider has not received yet.", no_args_is_help=True, rich_markup_mode=None
)


@app.command()
def deliver(
    ctx: typer.Context,
    unless_running: Annotated[
        bool, typer.Option("--unless-running", help="Exit at once if a deliverer runs already.")
    ] = False,
) -> int:
    """Deliver all queued messages to the memory provider, then end. Chats and gateways do this by themselves."""
    found = load_app(ctx)
    start_home_log(found)
    return with_store(found, lambda store: _deliver(found, store, unless_running))


@app.command("list")
def list_entries(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(help="Number of entries of each state to show.", min=1, max=1000)] = 50,
    json: AsJson = False,
) -> None:
    """List the outbox of every provider that was ever chosen: entries that wait for delivery, and failed ones with the
    reason."""
    found = read_store(load_app(ctx), lambda store, tx: _listed(store, tx, limit))
    if json:
        print_json(found)
        return
    for provider in found:
        note(f"{provider['provider']}: {provider['waiting']} waiting, {provider['dead']} {FAILED}")
    rows = [
        (
            entry["id"],
            entry["provider"],
            _state(entry["state"]),
            entry["kind"],
            show_time(entry["at"]),
            entry["reason"] or "",
        )
        for provider in found
        for entry in provider["entries"]
    ]
    if rows:
        print_table(["id", "provider", "state", "kind", "since", "reason"], [tuple(map(str, row)) for row in rows])
    elif not found:
        note("The outbox is empty.")


def _state(state: str) -> str:
    return FAILED if state == PUT_ASIDE else state


def _listed(store: Store, tx: Tx, limit: int) -> list[dict[str, Json]]:
    now, found = store.clock.now(), []
    for name in queues(tx, queue_name("")):
        counted = stats(tx, name, now=now)
        rows = [item for state in STATES for item in items(tx, name, state, limit=limit)]
        provider = name.removeprefix(queue_name(""))
        if counted.waiting or counted.dead:
            entries = [
                {
                    "id": item.id,
                    "provider": provider,
                    "state": PUT_ASIDE if item.state == "dead" else item.state,
                    "kind": item.payload["kind"],
                    "session_id": item.session_id,
                    "at": item.created_at,
                    "attempts": item.attempts,
                    "reason": item.reason,
                }
                for item in rows
            ]
            found.append({"provider": provider, **to_builtins(counted), "entries": entries})
    return found


@app.command()
def retry(
    ctx: typer.Context,
    entries: Annotated[list[int] | None, typer.Argument(help="Ids, as `list` shows them; without any, all.")] = None,
    json: AsJson = False,
) -> None:
    """Retry failed entries, in their original order."""
    _print_ids(write_store(load_app(ctx), lambda store, tx: retry_entries(store, tx, entries)), "retried", json)


@app.command()
def drop(
    ctx: typer.Context,
    entries: Annotated[list[int], typer.Argument(help="Ids, as `list` shows them.")],
    json: AsJson = False,
) -> None:
    """Drop entries for good: they are not delivered. One whose delivery has begun may have arrived."""
    _print_ids(write_store(load_app(ctx), lambda _, tx: drop_entries(tx, entries)), "dropped", json)


def _print_ids(ids: list[int], done: str, json: bool) -> None:
    if json:
        print_json({done: ids})
    else:
        note(f"{len(ids)} {'entry' if len(ids) == 1 else 'entries'} {done}.")


async def _deliver(found: App, store: Store, unless_running: bool) -> int:
    owner = new_owner()
    provider = open_provider(found, store)
    if provider is None:
        raise UsageError(NONE_CHOSEN, hint="`hermes config set memory.provider NAME` chooses one")
    async with one_per_home(store, owner) as ours:
        if not ours and unless_running:
            note("Another process is delivering already.")
            return 0
        deliveries = Deliveries(provider, owner, MAX_LANES)
        deliveries.start()
        left = await wait_for_deliveries(store, deliveries)
        await deliveries.finish(0.0)
        await provider.close()
    if left.entries:
        note(f"Entries remain in {left.lanes} lanes; `hermes memory outbox list` shows them.")
    else:
        note("All entries are delivered.")
    return 1 if left.entries else 0


async def wait_for_deliveries(
    store: Store, deliveries: Deliveries, enough: int = 0, timeout_seconds: float | None = None
) -> Left:
    """Wait until at most `enough` entries remain, or nothing has moved for `timeout_seconds`. Returns what is left."""
    timeout_seconds = STALL_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
    before, still_since = await deliveries.left(), store.clock.now()
    while before.entries > enough and store.clock.now() - still_since < timeout_seconds:
        await asyncio.sleep(POLL_SECONDS)
        left = await deliveries.left()
        if left != before:
            before, still_since = left, store.clock.now()
    return before


@asynccontextmanager
async def one_per_home(store: Store, owner: str, ttl: float = LEASE_SECONDS) -> AsyncIterator[bool]:
    """Hold the home's deliverer lease while the block runs. Yields False if another process holds it."""
    wanted = wanted_lease(store, "the deliverer's lease", LEASE, owner, ttl)
    held = await take(store, wanted)
    if held is None:
        yield False
        return
    async with kept(store, wanted, held):
        yield True


def start_deliverer(found: App) -> None:
    """Start a detached process that delivers the rest of the outbox after this one has ended."""
    apart = {"creationflags": DETACHED_PROCESS_CODE} if os.name == "nt" else {"start_new_session": True}
    try:
        subprocess.Popen(  # not waited for: it outlives this process
            # -P: do not import modules from the home, its working directory
            [sys.executable, "-P", "-m", "hermes", "memory", "outbox", "deliver", "--unless-running"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=found.home.path,
            env={**os.environ, "HERMES_HOME": str(found.home.path)},
            **apart,
        )
    except OSError as error:
        log.warning("cannot start a deliverer; unsynced messages wait for the next one: %s", error)
