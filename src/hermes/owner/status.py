"""The status of memory: whether the provider works, its unsent entries, and its warnings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hermes.app import App
from hermes.assembly import open_offer, open_provider
from hermes.db.engine import Tx
from hermes.db.queue_items import queues, stats
from hermes.errors import HermesError
from hermes.memory.active import ActiveProvider
from hermes.memory.command_host import CommandHost, acquaintances, look_over
from hermes.memory.outbox import queue_name
from hermes.memory.registry import NONE
from hermes.settings import ALLOW, PROVIDER
from hermes.store.memory_rows import get_health, get_value, set_value
from hermes.store.store import Store
from hermes.types import Json

NOTICE_MARK = ("told", "default")
"""The kind and key of the mark that the default provider's notice was shown."""
NOTICE = (
    "Memory is on: {} keeps what is said, on this machine alone, and recalls it in later conversations. `hermes memory "
    "status` shows it; `hermes config set memory.provider none` switches it off."
)


async def read_status(found: App, store: Store) -> dict[str, Json]:
    """Return the status of the chosen provider, and of the outboxes of all providers."""
    provider = open_provider(found, store)
    try:
        return await describe_status(found, store, provider)
    finally:
        if provider is not None:
            await provider.close()


async def describe_status(found: App, store: Store, provider: ActiveProvider | None) -> dict[str, Json]:
    """Return the same for an open provider."""
    name = found.settings.get(PROVIDER)
    told = {} if provider is None else dict(await provider.status())
    problem = None if provider is None else next(iter(provider.health.failing().values()), None)
    outboxes = await store.read(lambda tx: read_outboxes(tx, store.clock.now()))
    remarks = [] if name == NONE else await read_remarks(found, store)
    return {
        "provider": name,
        "problem": problem,
        "plugin": told,
        "remarks": remarks,
        "tools": _tools(found),
        "outbox": outboxes.pop(name, None) if name != NONE else None,
        "others": outboxes,
    }


def _tools(found: App) -> str | None:
    """Return why the model gets no tools, so that it cannot query memory itself; None if it gets them."""
    offer = open_offer(found)
    if offer is None or offer.tool_use is None:
        return None
    name = offer.answering or offer.tool_use.last_tested()
    return None if offer.tool_use.is_offered(name) else f"{name or 'the model'}: {offer.tool_use.describe(name)}"


async def read_remarks(found: App, store: Store) -> list[str]:
    """Return the chosen provider's warnings about its configuration and people; empty if the provider fails, which
    is reported elsewhere."""
    people = await store.read(lambda tx: acquaintances(tx, found.settings.get(ALLOW)))

    # What is wrong is told by who runs the provider.
    host = quiet_host(found)

    def ask() -> Sequence[str]:
        return look_over(found.settings.get(PROVIDER), found.home.plugins, host, people).remarks

    try:
        return list(await asyncio.to_thread(ask))
    except HermesError:
        return []


async def take_default_notice(app: App, store: Store) -> str | None:
    """Return the notice about the default provider once; None later, and for a provider that a person chose."""
    name = app.settings.get(PROVIDER)
    if name == NONE or app.settings.is_given(PROVIDER):
        return None
    if await store.read(lambda tx: get_value(tx, name, *NOTICE_MARK)):
        return None

    def take(tx: Tx) -> bool:
        was_told = bool(get_value(tx, name, *NOTICE_MARK))
        set_value(tx, name, *NOTICE_MARK, True)
        return was_told

    return None if await store.write(take) else NOTICE.format(name.capitalize())


def read_outboxes(tx: Tx, now: float) -> dict[str, Json]:
    """Return by provider the counts of waiting entries and dead letters, and the results of deliveries."""
    found: dict[str, Json] = {}
    for queue in queues(tx, queue_name("")):
        name = queue.removeprefix(queue_name(""))
        counted, health = stats(tx, queue, now=now), get_health(tx, name)
        found[name] = {
            "waiting": counted.waiting,
            "put_aside": counted.dead,
            "oldest_seconds": round(counted.oldest_age, 1),
            "last_success": health.last_success,
            "last_error": health.last_error,
            "last_error_at": health.last_error_at,
            "failing_since": health.failing_since,
        }
    return found


def quiet_host(app: App) -> CommandHost:
    """Return a host for opening a provider without reporting its problems."""
    chosen = app.settings.is_given(PROVIDER)
    return CommandHost(app.home.path, app.home.profile, app.env, app.clock, lambda _: None, chosen)
