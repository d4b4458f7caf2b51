"""Forgetting words everywhere: in the home, at the provider, in other profiles that tell the same memory. It blocks.

find_everywhere ── shown to a person ── forget_everywhere: deletes here and there, until neither finds more
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import sleep

from msgspec import Struct

from hermes.app import App, read_store, with_store
from hermes.db.engine import Tx
from hermes.db.queue_items import is_held
from hermes.errors import HermesError
from hermes.memory.command_host import guarded
from hermes.memory.forgetting import (
    InFlight,
    Kept,
    find_kept,
    find_noted,
    find_told,
    forget_kept,
    mark_forgotten,
    mark_replies,
)
from hermes.memory.provider import MemoryPlugin
from hermes.memory.registry import NONE
from hermes.memory.values import Holding, Wording
from hermes.owner.typed import take_out
from hermes.settings import PROVIDER
from hermes.store.store import Store

MOST_PASSES = 5
"""How often host and provider are gone through, as long as something new is said or queued meanwhile."""
MOST_ROUNDS = 100
"""How often a provider is asked for more in a pass: each time it shows some hundreds of things at least."""
PATIENCE, LOOK_EVERY = 65, 1.0
"""How often a delivery that is under way is looked at, a little longer than it may take, and the seconds between."""
ARRIVES = "some of it was being delivered and may still arrive: run the same command again in a minute"


class ForgettingNews(Struct, frozen=True):
    """How a person hears of what takes long: a line, and a line while a block runs."""

    note: Callable[[str], object] = lambda _: None
    saying: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()


QUIET = ForgettingNews()


class FoundEverywhere(Struct, frozen=True):
    """What the provider holds, what the host has, the same for other profiles that tell the same memory, and the other
    providers, which may hold more."""

    at_provider: Holding
    here: Kept
    profiles: dict[str, Kept]
    not_asked: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.at_provider.items and all(one.is_empty for one in (self.here, *self.profiles.values()))


class HostMemory(Struct, frozen=True):
    """A profile whose conversations tell the memory, and what was seen there."""

    app: App
    seen: Kept
    under_way: InFlight = InFlight()


def find_everywhere(
    app: App, plugin: MemoryPlugin | None, wording: Wording, progress: ForgettingNews = QUIET
) -> tuple[FoundEverywhere, list[str]]:
    """What there is, and in words what stays or could not be looked at: notes, profiles, other providers."""
    held = Holding()
    if plugin is not None:
        held = _find_there(plugin, wording, progress, is_first=True)
    told = read_store(app, lambda _, tx: find_told(tx))
    others = tuple(name for name in told if plugin is None or name != plugin.name)
    profiles: dict[str, Kept] = {}
    unseen: list[str] = []
    for name in held.profiles:
        try:
            other = App.load(name)
            if other.home.state_file.exists():
                profiles[name] = _look(other, wording)
        except HermesError as error:
            unseen.append(
                f"profile {name} may tell it again, for it could not be looked at ({error.line()}): "
                f"`hermes -p {name} memory forget WORDS` looks there"
            )
    found = FoundEverywhere(held, _look(app, wording), profiles, others)
    noted = [line for one in (app, *map(App.load, found.profiles)) for line in find_noted(one.home, wording)]
    return found, [*noted, *unseen, *map(_not_asked, found.not_asked)]


def _look(app: App, wording: Wording) -> Kept:
    return read_store(app, lambda store, tx: find_kept(store, tx, wording))


def forget_everywhere(
    app: App,
    plugin: MemoryPlugin | None,
    wording: Wording,
    found: FoundEverywhere,
    progress: ForgettingNews = QUIET,
) -> list[str]:
    """Delete what was found and what has come since; what stays, in words."""
    others = [HostMemory(App.load(name), seen) for name, seen in found.profiles.items()]
    hosts = [HostMemory(app, found.here), *others]
    stays = _forget_all(hosts, plugin, wording, progress)
    for host in hosts:
        take_out(host.app.home.chat_history_file, wording.is_in)
    return stays


def _forget_all(
    hosts: Sequence[HostMemory], plugin: MemoryPlugin | None, wording: Wording, progress: ForgettingNews
) -> list[str]:
    """Forget in the hosts, so that nothing is told again, then at the provider; and again, until nothing has come
    meanwhile. What stays, or may still arrive, in words."""
    may_arrive, left = list[str](), list[str]()
    for number in range(MOST_PASSES):
        hosts = [_forget_here(host, wording) for host in hosts]
        if number and all(host.seen.is_empty for host in hosts):
            return [*may_arrive, *left]
        may_arrive = list({line: None for host in hosts for line in _wait_for(host, progress)})
        left = [] if plugin is None else _forget_there(plugin, wording, progress)
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
        return HostMemory(app, kept, InFlight((*before.held, *found.held), before.was_tried or found.was_tried))

    async def work(store: Store) -> HostMemory:
        # Read first: while this one writes nobody else can, and what is new by then is little.
        seen = await store.read(lambda tx: find_kept(store, tx, wording, host.seen))
        return await store.write(lambda tx: forget(store, tx, seen))

    return with_store(app, work)


def _find_there(plugin: MemoryPlugin, wording: Wording, progress: ForgettingNews, *, is_first: bool = False) -> Holding:
    """What the provider holds. A person is told when that takes long."""
    what = f"Looking through what {plugin.name} holds"
    with progress.saying(f"{what}; its server may have to be started first" if is_first else what):
        return guarded(plugin.name, "find_remembered", lambda: plugin.find_remembered(wording))


def _forget_there(plugin: MemoryPlugin, wording: Wording, progress: ForgettingNews) -> list[str]:
    """Delete at the provider until it finds nothing any more, or the same again; what stays."""
    name, before, left = plugin.name, None, _find_there(plugin, wording, progress)
    for _ in range(MOST_ROUNDS):
        if not left.items or left.items == before:
            break
        with progress.saying(f"Deleting what {name} holds"):
            guarded(name, "forget", partial(plugin.forget, left.items))
        before, left = left.items, _find_there(plugin, wording, progress)
    more = [f"{len(left.items)} or more things are still at {name}; the same command goes on"] if left.items else []
    return [*left.stays, *more]


def _wait_for(host: HostMemory, progress: ForgettingNews) -> list[str]:
    """Wait until what was being delivered has arrived or failed, so that it can be found; what may still arrive."""
    app, held = host.app, host.under_way.held

    def look(_: Store, tx: Tx) -> bool:
        return any(is_held(tx, one, now=app.clock.now()) for one in held)

    for turn in range(PATIENCE):
        if not held or not read_store(app, look):
            return [ARRIVES] if host.under_way.was_tried else []
        if turn == 0:
            progress.note("Some of it is being delivered right now. Waiting for that …")
        sleep(LOOK_EVERY)
    return [ARRIVES]


def _not_asked(provider: str) -> str:
    return (
        f"{provider} may hold more and was not asked: `HERMES_MEMORY_PROVIDER={provider} hermes memory forget WORDS` "
        "asks it"
    )
