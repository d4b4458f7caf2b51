"""What `hermes memory forget` does after a yes: it deletes here and at the provider, until neither finds more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import sleep

from hermes.app import App
from hermes.cli.output import note
from hermes.cli.start import with_store
from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.db.queue_items import is_held
from hermes.memory.command_host import guarded
from hermes.memory.forgetting import Kept, find_kept, forget_kept, mark_forgotten
from hermes.memory.provider import MemoryPlugin
from hermes.memory.registry import NONE
from hermes.memory.values import Wording
from hermes.settings import PROVIDER
from hermes.store.store import Store

MOST_PASSES = 5
"""How often host and provider are gone through, as long as something new is said or queued meanwhile."""
MOST_ROUNDS = 100
"""How often a provider is asked for more in a pass: each time it shows some hundreds of things at least."""
PATIENCE, LOOK_EVERY = 65, 1.0
"""How often a delivery that is under way is looked at, a little longer than it may take, and the seconds between."""


def forget_all(app: App, plugin: MemoryPlugin | None, wording: Wording, found: Kept) -> list[str]:
    """Forget here, so that nothing is told again, then there; and again, until nothing has come meanwhile. `found` is
    what was seen here before. What stays, or may still arrive, in words."""
    seen, held = found, list[Lease]()
    may_arrive, left = list[str](), list[str]()
    for number in range(MOST_PASSES):
        seen, more = _forget_here(app, wording, seen)
        if number and seen.is_empty:
            return [*may_arrive, *left]
        held += more
        may_arrive = _wait_for(app, held)
        left = [] if plugin is None else _forget_there(plugin, wording)
    return [*may_arrive, *left, "it is being said again all the time: run the same command again"]


def _forget_here(app: App, wording: Wording, seen: Kept) -> tuple[Kept, list[Lease]]:
    """Forget in the host what was seen and what has come since; that, and the leases under which it is delivered."""

    def forget(store: Store, tx: Tx, kept: Kept) -> tuple[Kept, list[Lease]]:
        _mark(app, tx)
        return forget_kept(store, tx, wording, kept, now=app.clock.now())

    async def work(store: Store) -> tuple[Kept, list[Lease]]:
        # Read first: while this one writes nobody else can, and what is new by then is little.
        kept = await store.read(lambda tx: find_kept(store, tx, wording, seen))
        return await store.write(lambda tx: forget(store, tx, kept))

    return with_store(app, work)


def _forget_there(plugin: MemoryPlugin, wording: Wording) -> list[str]:
    """Delete at the provider until it finds nothing any more, or the same again; what stays."""
    name, before = plugin.name, None
    left = guarded(name, "find_remembered", lambda: plugin.find_remembered(wording))
    for _ in range(MOST_ROUNDS):
        if not left.items or left.items == before:
            break
        guarded(name, "forget", partial(plugin.forget, left.items))
        before = left.items
        left = guarded(name, "find_remembered", lambda: plugin.find_remembered(wording))
    more = [f"{len(left.items)} or more things are still at {name}; the same command goes on"] if left.items else []
    return [*left.stays, *more]


def _wait_for(app: App, held: Sequence[Lease]) -> list[str]:
    """Wait until what was being delivered has arrived or failed, so that it can be found; what may still arrive."""

    def look(tx: Tx) -> bool:
        return any(is_held(tx, one, now=app.clock.now()) for one in held)

    for turn in range(PATIENCE):
        if not held or not with_store(app, lambda store: store.read(look)):
            return []
        if turn == 0:
            note("Some of it is being delivered right now. Waiting for that …")
        sleep(LOOK_EVERY)
    return ["some of it was being delivered and may still arrive: run the same command again in a minute"]


def _mark(app: App, tx: Tx) -> None:
    """What a running conversation fetched before may hold it."""
    name = app.settings.get(PROVIDER)
    if name != NONE:
        mark_forgotten(tx, name, now=app.clock.now())
