"""What `hermes memory forget` does after a yes: it deletes here and at the provider, until neither finds more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import sleep

from msgspec import Struct

from hermes.app import App
from hermes.cli.output import note, saying
from hermes.cli.start import read_store, with_store
from hermes.db.engine import Tx
from hermes.db.queue_items import is_held
from hermes.memory.command_host import guarded
from hermes.memory.forgetting import Kept, UnderWay, find_kept, forget_kept, mark_forgotten, mark_replies
from hermes.memory.provider import MemoryPlugin
from hermes.memory.registry import NONE
from hermes.memory.values import Holding, Wording
from hermes.settings import PROVIDER
from hermes.store.store import Store

MOST_PASSES = 5
"""How often host and provider are gone through, as long as something new is said or queued meanwhile."""
MOST_ROUNDS = 100
"""How often a provider is asked for more in a pass: each time it shows some hundreds of things at least."""
PATIENCE, LOOK_EVERY = 65, 1.0
"""How often a delivery that is under way is looked at, a little longer than it may take, and the seconds between."""
ARRIVES = "some of it was being delivered and may still arrive: run the same command again in a minute"


class HostMemory(Struct, frozen=True):
    """A profile whose conversations tell the memory, and what was seen there."""

    app: App
    seen: Kept
    under_way: UnderWay = UnderWay()


def forget_all(hosts: Sequence[HostMemory], plugin: MemoryPlugin | None, wording: Wording) -> list[str]:
    """Forget in the hosts, so that nothing is told again, then at the provider; and again, until nothing has come
    meanwhile. What stays, or may still arrive, in words."""
    may_arrive, left = list[str](), list[str]()
    for number in range(MOST_PASSES):
        hosts = [_forget_here(host, wording) for host in hosts]
        if number and all(host.seen.is_empty for host in hosts):
            return [*may_arrive, *left]
        may_arrive = list({line: None for host in hosts for line in _wait_for(host)})
        left = [] if plugin is None else _forget_there(plugin, wording)
    return [*may_arrive, *left, "it is being said again all the time: run the same command again"]


def _forget_here(host: HostMemory, wording: Wording) -> HostMemory:
    """Forget in a host what was seen and what has come since; that, and what of it may still arrive."""
    app = host.app

    def forget(store: Store, tx: Tx, seen: Kept) -> HostMemory:
        if (name := app.settings.get(PROVIDER)) != NONE:  # what a running conversation fetched before may hold it
            mark_forgotten(tx, name, now=app.clock.now())
            mark_replies(tx, name, now=app.clock.now())
        kept, found = forget_kept(store, tx, wording, seen, now=app.clock.now())
        before = host.under_way
        return HostMemory(app, kept, UnderWay((*before.held, *found.held), before.was_tried or found.was_tried))

    async def work(store: Store) -> HostMemory:
        # Read first: while this one writes nobody else can, and what is new by then is little.
        seen = await store.read(lambda tx: find_kept(store, tx, wording, host.seen))
        return await store.write(lambda tx: forget(store, tx, seen))

    return with_store(app, work)


def find_there(plugin: MemoryPlugin, wording: Wording, *, is_first: bool = False) -> Holding:
    """What the provider holds. A person is told when that takes long."""
    what = f"Looking through what {plugin.name} holds"
    with saying(f"{what}; its server may have to be started first" if is_first else what):
        return guarded(plugin.name, "find_remembered", lambda: plugin.find_remembered(wording))


def _forget_there(plugin: MemoryPlugin, wording: Wording) -> list[str]:
    """Delete at the provider until it finds nothing any more, or the same again; what stays."""
    name, before, left = plugin.name, None, find_there(plugin, wording)
    for _ in range(MOST_ROUNDS):
        if not left.items or left.items == before:
            break
        with saying(f"Deleting what {name} holds"):
            guarded(name, "forget", partial(plugin.forget, left.items))
        before, left = left.items, find_there(plugin, wording)
    more = [f"{len(left.items)} or more things are still at {name}; the same command goes on"] if left.items else []
    return [*left.stays, *more]


def _wait_for(host: HostMemory) -> list[str]:
    """Wait until what was being delivered has arrived or failed, so that it can be found; what may still arrive."""
    app, held = host.app, host.under_way.held

    def look(_: Store, tx: Tx) -> bool:
        return any(is_held(tx, one, now=app.clock.now()) for one in held)

    for turn in range(PATIENCE):
        if not held or not read_store(app, look):
            return [ARRIVES] if host.under_way.was_tried else []
        if turn == 0:
            note("Some of it is being delivered right now. Waiting for that …")
        sleep(LOOK_EVERY)
    return [ARRIVES]
