"""Forgetting words everywhere: in the home, at the provider, and in other profiles with the same memory. Blocks.

find_everywhere ── shown to a person ── forget_everywhere: deletes until neither home nor provider finds more
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
from hermes.memory.forgetting import (
    InFlight,
    Kept,
    find_kept,
    find_noted,
    find_synced_providers,
    forget_kept,
    mark_forgotten,
    mark_replies,
)
from hermes.memory.plugin_host import guarded
from hermes.memory.provider import MemoryPlugin
from hermes.memory.registry import NONE
from hermes.memory.values import Holding, Wording
from hermes.owner.sessions import remove_typed
from hermes.settings import PROVIDER
from hermes.store.store import Store

MAX_PASSES = 5
"""Passes over host and provider, repeated while new matches appear."""
MAX_ROUNDS = 100
"""Searches at a provider in one pass; each finds at least some hundreds of items."""
MAX_DELIVERY_CHECKS, CHECK_INTERVAL_SECONDS = 65, 1.0
"""Checks of a running delivery, slightly longer than its deadline, and the seconds between them."""
ARRIVES = "some of it was being delivered and may still arrive: run the same command again in a minute"


class ForgettingNews(Struct, frozen=True):
    """Callbacks for progress: one prints a line, the other shows a line while a block runs."""

    note: Callable[[str], object] = lambda _: None
    saying: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()


QUIET = ForgettingNews()


class FoundEverywhere(Struct, frozen=True):
    """Everything that matches: at the provider, in this home, in other profiles with the same memory, and the names
    of other providers, which are not searched."""

    at_provider: Holding
    here: Kept
    profiles: dict[str, Kept]
    not_asked: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.at_provider.items and all(one.is_empty for one in (self.here, *self.profiles.values()))


class HostMemory(Struct, frozen=True):
    """A profile that feeds the memory, and the matches found there."""

    app: App
    seen: Kept
    under_way: InFlight = InFlight()


def find_everywhere(
    app: App, plugin: MemoryPlugin | None, wording: Wording, progress: ForgettingNews = QUIET
) -> tuple[FoundEverywhere, list[str]]:
    """Return everything that matches, and sentences on what stays or could not be searched."""
    held = Holding()
    if plugin is not None:
        held = _find_there(plugin, wording, progress, is_first=True)
    told = read_store(app, lambda _, tx: find_synced_providers(tx))
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
    """Delete everything found and anything new; return sentences on what stays."""
    others = [HostMemory(App.load(name), seen) for name, seen in found.profiles.items()]
    hosts = [HostMemory(app, found.here), *others]
    stays = _forget_all(hosts, plugin, wording, progress)
    for host in hosts:
        remove_typed(host.app.home.chat_history_file, wording.is_in)
    return stays


def _forget_all(
    hosts: Sequence[HostMemory], plugin: MemoryPlugin | None, wording: Wording, progress: ForgettingNews
) -> list[str]:
    """Delete in the hosts, so that nothing is sent again, then at the provider; repeat until nothing new appears.
    Return sentences on what stays or may still arrive."""
    may_arrive, left = list[str](), list[str]()
    for number in range(MAX_PASSES):
        hosts = [_forget_here(host, wording) for host in hosts]
        if number and all(host.seen.is_empty for host in hosts):
            return [*may_arrive, *left]
        may_arrive = list({line: None for host in hosts for line in _wait_for(host, progress)})
        left = [] if plugin is None else _forget_there(plugin, wording, progress)
    return [*may_arrive, *left, "it is being said again all the time: run the same command again"]


def _forget_here(host: HostMemory, wording: Wording) -> HostMemory:
    """Delete old and new matches in a host; return them, and the deliveries of them that are under way."""
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
    """Search at the provider, with a line of progress."""
    what = f"Looking through what {plugin.name} holds"
    with progress.saying(f"{what}; its server may have to be started first" if is_first else what):
        return guarded(plugin.name, "find_remembered", lambda: plugin.find_remembered(wording))


def _forget_there(plugin: MemoryPlugin, wording: Wording, progress: ForgettingNews) -> list[str]:
    """Delete at the provider until it finds nothing or the same items again; return sentences on what stays."""
    name, before, left = plugin.name, None, _find_there(plugin, wording, progress)
    for _ in range(MAX_ROUNDS):
        if not left.items or left.items == before:
            break
        with progress.saying(f"Deleting what {name} holds"):
            guarded(name, "forget", partial(plugin.forget, left.items))
        before, left = left.items, _find_there(plugin, wording, progress)
    more = [f"{len(left.items)} or more things are still at {name}; the same command goes on"] if left.items else []
    return [*left.stays, *more]


def _wait_for(host: HostMemory, progress: ForgettingNews) -> list[str]:
    """Wait for running deliveries of matches, so that these can be found; return a sentence if some may still
    arrive."""
    app, held = host.app, host.under_way.held

    def look(_: Store, tx: Tx) -> bool:
        return any(is_held(tx, one, now=app.clock.now()) for one in held)

    for turn in range(MAX_DELIVERY_CHECKS):
        if not held or not read_store(app, look):
            return [ARRIVES] if host.under_way.was_tried else []
        if turn == 0:
            progress.note("Some of it is being delivered right now. Waiting for that …")
        sleep(CHECK_INTERVAL_SECONDS)
    return [ARRIVES]


def _not_asked(provider: str) -> str:
    return (
        f"{provider} may hold more and was not asked: `HERMES_MEMORY_PROVIDER={provider} hermes memory forget WORDS` "
        "asks it"
    )
