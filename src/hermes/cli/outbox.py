"""`hermes memory outbox`: what a memory provider has not been told yet, and a process that tells it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from hermes.app import App
from hermes.assembly import open_provider
from hermes.cli.output import note, print_json, show_time
from hermes.cli.start import AsJson, load_app, with_store
from hermes.cli.table import print_table
from hermes.db import leases
from hermes.db.engine import Tx
from hermes.db.owners import is_gone, new_owner
from hermes.db.queue import State
from hermes.db.queue_items import items, queues, stats
from hermes.errors import UsageError
from hermes.logs import start_log
from hermes.memory.deliveries import Deliveries
from hermes.memory.outbox import queue_name
from hermes.settings import API_KEY, LOG_FORMAT, LOG_LEVEL
from hermes.store.store import Store
from hermes.types import Json

LEASE = "memory-deliverer"
TTL = 90.0
LANES_AT_ONCE = 4
STATES: tuple[State, ...] = ("waiting", "dead")
DETACHED = 0x00000008
"""What Windows calls a process that has no console of ours."""
PATIENCE = 60.0
"""Seconds without any progress after which a deliverer gives up; what is left waits for the next one."""
app = typer.Typer(help="What the memory provider has not been told yet.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def deliver(ctx: typer.Context) -> int:
    """Tell the memory provider what it has not been told, then end. One runs per home; others do this by themselves."""
    found = load_app(ctx)
    start_log(
        found.home.log_file,
        level=found.settings.get(LOG_LEVEL),
        form=found.settings.get(LOG_FORMAT),
        secrets=[found.settings.get(API_KEY)],
    )
    return with_store(found, lambda store: _deliver(found, store))


@app.command("list")
def list_entries(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(help="How many entries of each kind to show.", min=1, max=1000)] = 50,
    json: AsJson = False,
) -> None:
    """What waits to be delivered, and what was put aside with its reason; of every provider there ever was."""
    found = with_store(load_app(ctx), lambda store: store.read(lambda tx: _listed(store, tx, limit)))
    if json:
        print_json(found)
        return
    for provider in found:
        note(f"{provider['provider']}: {provider['waiting']} waiting, {provider['dead']} put aside")
    rows = [
        (entry["id"], entry["provider"], entry["state"], entry["kind"], show_time(entry["at"]), entry["reason"] or "")
        for provider in found
        for entry in provider["entries"]
    ]
    if rows:
        print_table(["id", "provider", "state", "kind", "since", "reason"], [tuple(map(str, row)) for row in rows])
    elif not found:
        note("The outbox is empty.")


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
                    "state": "put aside" if item.state == "dead" else item.state,
                    "kind": item.payload["kind"],
                    "session_id": item.session_id,
                    "at": item.created_at,
                    "attempts": item.attempts,
                    "reason": item.reason,
                }
                for item in rows
            ]
            found.append({"provider": provider, **asdict(counted), "entries": entries})
    return found


async def _deliver(found: App, store: Store) -> int:
    owner = new_owner()
    provider = open_provider(found, store)
    if provider is None:
        raise UsageError("no memory provider is chosen", hint="`hermes config set memory.provider NAME` chooses one")
    if not await store.write(lambda tx: _take_over(tx, owner, store.clock.now())):
        note("Another process is delivering already.")
        return 0
    deliveries = Deliveries(provider, owner, LANES_AT_ONCE)
    deliveries.start()
    try:
        await _until_nothing_moves(store, deliveries)
        left = await deliveries.left()
        await deliveries.finish(0.0)
        await provider.close()
    finally:
        await store.write(lambda tx: leases.revoke(tx, LEASE))
    if left.waiting:
        note(f"Something is left in {left.waiting} lanes; `hermes memory outbox list` shows it.")
    return 1 if left.waiting else 0


async def _until_nothing_moves(store: Store, deliveries: Deliveries) -> None:
    """Return when nothing waits, or nothing has moved for a while."""
    before, still_since = await deliveries.left(), store.clock.now()
    while before.waiting and store.clock.now() - still_since < PATIENCE:
        await asyncio.sleep(0.2)
        left = await deliveries.left()
        if left != before:
            before, still_since = left, store.clock.now()


def _take_over(tx: Tx, owner: str, now: float) -> bool:
    held = leases.holder(tx, LEASE, now=now)
    if held is not None and is_gone(held.owner):
        leases.evict(tx, held)
    return leases.acquire(tx, LEASE, owner, ttl=TTL, now=now) is not None


def start_deliverer(found: App) -> None:
    """Leave the rest of the outbox to a process of its own, which goes on when this one has ended."""
    profile = ["-p", found.home.profile] if found.home.profile else []
    apart = {"creationflags": DETACHED} if os.name == "nt" else {"start_new_session": True}
    subprocess.Popen(  # it is not waited for: it outlives us
        [sys.executable, "-m", "hermes", *profile, "memory", "outbox", "deliver"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=found.home.path,
        **apart,
    )
