"""`hermes memory status`: which provider is chosen, whether it works, and what it has not been told yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import typer
from msgspec.structs import replace

from hermes.app import App
from hermes.assembly import open_offer, open_provider
from hermes.cli.desk import command_host
from hermes.cli.memory_server import read_server, server_lines
from hermes.cli.output import print_json, printable, say, show_time
from hermes.cli.start import AsJson, load_app, with_store
from hermes.db.engine import Tx
from hermes.db.queue_items import queues, stats
from hermes.errors import HermesError
from hermes.memory.command_host import acquaintances, look_over
from hermes.memory.outbox import queue_name
from hermes.memory.registry import NONE
from hermes.redaction import hide_passwords
from hermes.settings import ALLOW, PROVIDER
from hermes.store.memory_rows import get_health, get_value, set_value
from hermes.store.store import Store
from hermes.types import Json

TOLD = ("told", "default")
"""The kind and key under which a home knows that its provider was told of."""
NOTICE = (
    "Memory is on: {} keeps what is said, on this machine alone, and recalls it in later conversations. `hermes memory "
    "status` shows it; `hermes config set memory.provider none` switches it off."
)


def status(ctx: typer.Context, json: AsJson = False) -> int:
    """The memory provider and the memory server: do they work, and what waits. Nothing is delivered or started."""
    found = load_app(ctx)
    logging.getLogger("hermes.memory").addHandler(logging.NullHandler())  # what it would print stands below
    shown = with_store(found, lambda store: read_status(found, store))
    shown["server"] = server = read_server(found.home)
    if json:
        print_json(shown)
    else:
        _print(shown)
        for line in server_lines(server):
            say(hide_passwords(printable(line)))
    fails = shown["outbox"] is not None and shown["outbox"]["failing_since"] is not None
    return 0 if shown["problem"] is None and server["problem"] is None and not fails else 1


async def read_status(found: App, store: Store) -> dict[str, Json]:
    """What there is to say of the provider that is chosen, and of the outboxes of all."""
    name = found.settings.get(PROVIDER)
    provider = open_provider(found, store)
    told: dict[str, Json] = {}
    problem = None
    if provider is not None:
        told = dict(await provider.status())
        problem = next(iter(provider.health.failing().values()), None)
        await provider.close()
    outboxes = await store.read(lambda tx: _outboxes(tx, store.clock.now()))
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
    """Why the model is offered no tools, so that memory is recalled and never asked by it; None where it is."""
    offer = open_offer(found)
    if offer is None or offer.tool_use is None:
        return None
    name = offer.answering or offer.tool_use.last_tested()
    return None if offer.tool_use.is_offered(name) else f"{name or 'the model'}: {offer.tool_use.describe(name)}"


async def read_remarks(found: App, store: Store) -> list[str]:
    """What the chosen provider has to say about its configuration and those who talk; nothing when it cannot be
    asked, which is told elsewhere."""
    people = await store.read(lambda tx: acquaintances(tx, found.settings.get(ALLOW)))

    host = replace(command_host(found), tell=lambda _: None)  # what is wrong is told by who runs the provider

    def ask() -> Sequence[str]:
        return look_over(found.settings.get(PROVIDER), found.home.plugins, host, people).remarks

    try:
        return list(await asyncio.to_thread(ask))
    except HermesError:
        return []


async def take_default_notice(app: App, store: Store) -> str | None:
    """What to tell of a provider that is there by default, the first time; None ever after, and of one that was
    chosen."""
    name = app.settings.get(PROVIDER)
    if name == NONE or app.settings.is_given(PROVIDER):
        return None
    if await store.read(lambda tx: get_value(tx, name, *TOLD)):
        return None

    def take(tx: Tx) -> bool:
        was_told = bool(get_value(tx, name, *TOLD))
        set_value(tx, name, *TOLD, True)
        return was_told

    return None if await store.write(take) else NOTICE.format(name.capitalize())


def _outboxes(tx: Tx, now: float) -> dict[str, Json]:
    """By provider: what waits and what was put aside, and how deliveries went."""
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


def _print(shown: dict[str, Json]) -> None:
    say(f"provider  {shown['provider']}{'' if shown['problem'] is None else ' (failing)'}")
    if shown["problem"]:
        say(f"problem   {hide_passwords(printable(shown['problem']))}")
    for label, value in shown["plugin"].items():
        say(hide_passwords(printable(f"{label:<9} {value}")))
    for line in shown["remarks"]:
        say(f"note      {hide_passwords(printable(line))}")
    if shown["tools"]:
        say(f"tools     {printable(shown['tools'])}")
    if shown["outbox"] is not None:
        say(f"outbox    {_line(shown['outbox'])}")
    for name, outbox in shown["others"].items():
        if outbox["waiting"] or outbox["put_aside"]:
            say(f"outbox of {name}, which is not chosen: {_line(outbox)}")


def _line(outbox: dict[str, Json]) -> str:
    parts = [f"{outbox['waiting']} waiting", f"{outbox['put_aside']} put aside"]
    if outbox["waiting"]:
        parts.append(f"the oldest for {outbox['oldest_seconds']:.0f} s")
    if outbox["last_success"] is not None:
        parts.append(f"last delivered {show_time(outbox['last_success'])}")
    if outbox["failing_since"] is not None:
        parts.append(f"failing since {show_time(outbox['failing_since'])}: {printable(outbox['last_error'] or '')}")
    return ", ".join(parts)
