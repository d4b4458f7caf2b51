"""The status of memory: whether the provider works, its unsent entries, and its warnings.

The state of the memory server of a home.

The health of a profile: memory provider and server, gateway, queues, model calls, and warnings of the log.

Activity of a profile over time: turns, seconds to their replies, and requests and tokens of models.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Literal, TypeAlias

from msgspec import Struct, to_builtins

from hermes.app import App
from hermes.assembly import open_offer, open_provider
from hermes.config_file import load_shared_env
from hermes.db import queue_items
from hermes.db.engine import Tx
from hermes.db.queue_items import queues, stats
from hermes.embedded.connect import find_running, read_own
from hermes.embedded.process import look
from hermes.embedded.rendezvous import find_place
from hermes.errors import HermesError
from hermes.files import check_room
from hermes.gateway.notices import STATUS_PART
from hermes.home import Home
from hermes.logs import read_warnings
from hermes.memory.active import ActiveProvider
from hermes.memory.outbox import queue_name
from hermes.memory.plugin_host import CommandHost, acquaintances, look_over
from hermes.memory.registry import NONE
from hermes.settings import ALLOW, PROVIDER
from hermes.store import inbox
from hermes.store.memory_rows import get_health, get_value, set_value
from hermes.store.store import Store
from hermes.store.usage import usage_by_hour, usage_by_model
from hermes.types import Json, Spent

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


def read_server(home: Home) -> dict[str, Json]:
    """Return address, process and health of a home's memory server, or that none runs. Starts nothing."""
    place = find_place(home, load_shared_env(home))
    shown: dict[str, Json] = {"folder": str(place.folder), "running": False, "problem": None}
    try:
        found = find_running(place)
        stale = read_own(place) if found is None else None
    except HermesError as error:
        return {**shown, "problem": error.line()}
    if found is None:
        return {**shown, "gone": None if stale is None else stale.pid}
    _, health = look(found)
    facts = {"url": found.url, "pid": found.pid, "version": found.version, "kind": found.kind}
    return {**shown, **facts, "running": True, "started_at": found.started_at, "health": dict(health)}


MAX_MODELS, MAX_WARNINGS = 20, 20


async def read_health(app: App, store: Store, provider: ActiveProvider | None) -> dict[str, Json]:
    """Return the contents of `hermes memory status` and `hermes gateway status`, the tokens of each model, and the
    latest warnings. Starts nothing."""
    memory, server, warnings = await asyncio.gather(
        describe_status(app, store, provider),
        asyncio.to_thread(read_server, app.home),
        asyncio.to_thread(read_warnings, app.home.log_file, MAX_WARNINGS),
    )
    gateway = await store.read(lambda tx: read_gateway(app, tx))
    models = await store.read(lambda tx: usage_by_model(tx, MAX_MODELS))
    return {
        "memory": memory,
        "server": server,
        "gateway": gateway,
        "models": to_builtins(models),
        "warnings": to_builtins(warnings),
    }


def read_gateway(app: App, tx: Tx) -> dict[str, Json]:
    """Return whether a gateway runs, the state of its parts, and the counts of all queues."""
    now = app.clock.now()
    running = inbox.running_gateway(tx, now=now)
    # One that was killed has left behind how its parts were.
    parts = [to_builtins(part) for part in [*(inbox.read_status(tx) if running else []), *_store_status(app)]]
    queues = {name: to_builtins(queue_items.stats(tx, name, now=now)) for name in queue_items.queues(tx)}
    return {"running": running, "parts": parts, "queues": queues}


def _store_status(app: App) -> list[inbox.PartStatus]:
    """Return a failing part if the home cannot be written to: the gateway could not record that itself."""
    try:
        check_room(app.home.path)
    except OSError as error:
        detail = f"nothing can be written in {app.home.path} ({error.strerror})"
        return [inbox.PartStatus(STATUS_PART, "failing", detail, app.clock.now())]
    return []


ActivitySpan: TypeAlias = Literal["day", "month"]
SPANS: Mapping[str, ActivitySpan] = {"day": "day", "month": "month"}
HOURS, DAYS = 24, 30
MAX_MESSAGES = 20_000
"""The newest messages that are searched for turns."""
MAX_TURN_SECONDS = 86_400.0
"""Longer turns are ignored: their replies were imported or came after a restart, and nobody waited for them."""
SLOW_SHARE = 0.95


class ActivityBucket(Struct, frozen=True):
    """The activity of one hour or day that begins at `at`. Seconds run from a stored message to its stored reply:
    their median, and their 95th percentile; None without turns."""

    at: float
    turns: int
    median_seconds: float | None
    slow_seconds: float | None
    requests: int
    prompt_tokens: int
    completion_tokens: int


def read_activity(store: Store, tx: Tx, span: ActivitySpan, now: float) -> list[ActivityBucket]:
    """Return the buckets of the last 24 hours or 30 days, the oldest first. Days are in the machine's time zone."""
    starts = _starts(span, now)
    took: dict[int, list[float]] = defaultdict(list)
    spent: dict[int, Spent] = defaultdict(Spent)
    for at, seconds in _read_turns(store, tx):
        if at >= starts[0]:
            took[bisect_right(starts, at) - 1].append(seconds)
    for at, one in usage_by_hour(tx, starts[0]):
        number = max(0, bisect_right(starts, at) - 1)
        spent[number] = spent[number] + one
    return [_bucket(at, sorted(took[number]), spent[number]) for number, at in enumerate(starts)]


def _starts(span: ActivitySpan, now: float) -> list[float]:
    here = datetime.fromtimestamp(now)
    if span == "day":
        hour = here.replace(minute=0, second=0, microsecond=0).timestamp()
        return [hour - 3600.0 * back for back in reversed(range(HOURS))]
    day = here.replace(hour=0, minute=0, second=0, microsecond=0)
    return [(day - timedelta(days=back)).timestamp() for back in reversed(range(DAYS))]


def _read_turns(store: Store, tx: Tx) -> list[tuple[float, float]]:
    """Return the start of each of the newest turns, and the seconds to its reply."""
    begun: dict[str, float] = {}
    turns = []
    for session_id, at, is_reply in store.messages.newest_times(tx, MAX_MESSAGES):
        if not is_reply:
            begun[session_id] = at
        elif (said_at := begun.pop(session_id, None)) is not None and 0 <= at - said_at <= MAX_TURN_SECONDS:
            turns.append((said_at, at - said_at))
    return turns


def _bucket(at: float, took: list[float], spent: Spent) -> ActivityBucket:
    middle = round(median(took), 3) if took else None
    slow = round(took[min(len(took) - 1, int(len(took) * SLOW_SHARE))], 3) if took else None
    return ActivityBucket(at, len(took), middle, slow, spent.requests, spent.prompt_tokens, spent.completion_tokens)
