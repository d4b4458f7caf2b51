"""`hermes memory dreams`: list what dreams added and retired, and undo one.

`hermes memory reread`: run this version's analysis over messages that an earlier version processed.

`hermes memory backfill`: send earlier sessions to the memory provider.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from hermes.app import App
from hermes.assembly import earlier_conversation, open_people, open_provider
from hermes.cli.dialog import agree
from hermes.cli.memory import Data, place_of
from hermes.cli.outbox import MAX_LANES, start_deliverer, wait_for_deliveries
from hermes.cli.output import note, one_line, print_json, printable, say
from hermes.cli.start import AsJson, load_app, with_store
from hermes.cli.transfer import server_of
from hermes.clock import SystemClock
from hermes.db.leases import new_owner
from hermes.db.queue_items import overdue
from hermes.embedded.rendezvous import Place
from hermes.errors import UsageError
from hermes.memory.active import ActiveProvider
from hermes.memory.backfill import Backfill, BackfillProgress, Earlier
from hermes.memory.deliveries import Deliveries
from hermes.memory.provider import Dialog
from hermes.memory.registry import NONE, NONE_CHOSEN
from hermes.settings import PROVIDER
from hermes.store.store import Store
from hermes.store.synced import is_any_synced
from hermes.types import Json

if TYPE_CHECKING:
    from hermes.transfer.remote import Remote

NO_DREAM = "No dream has changed anything."
LISTED_COUNT = 20


def dreams(
    ctx: typer.Context,
    undo: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Undo this dream: restore what it retired and remove what it added."),
    ] = None,
    data: Data = None,
    json: AsJson = False,
) -> None:
    """List the newest dreams of the memory server that changed something: the conclusions each added and those it
    retired. `hermes config set memory.dreams false` turns dreams off."""
    from hermes.memory_server.db.schema import FILE  # imported late: only this command needs the server's database

    place = place_of(ctx, data)
    found = asyncio.run(_read(place, undo)) if (place.folder / FILE).exists() else []
    if json:
        print_json(found)
        return
    for one in found:
        state = ", undone" if one["undone_at"] else ""
        say(printable(f"{one['id']}  {one['created_at'][:16].replace('T', ' ')}, workspace {one['workspace']}{state}"))
        for line in [f"drew: {text}" for text in one["added"]] + [f"retired: {text}" for text in one["retired"]]:
            say(printable(f"  {line}"))
    if not found:
        note(NO_DREAM)


async def _read(place: Place, undo: str | None) -> list[Mapping[str, Any]]:
    from hermes.memory_server import times
    from hermes.memory_server.db.schema import open_database
    from hermes.memory_server.engine.dreams import read_effects, undo_dream
    from hermes.memory_server.faults import Missing

    database = open_database(place.folder)
    try:
        if undo is not None:
            at = times.now(SystemClock())
            await database.write(lambda tx: undo_dream(tx, None, undo, at))
        return await database.read(lambda tx: read_effects(tx, LISTED_COUNT))
    except Missing as error:
        raise UsageError(f"there is no dream '{undo}'", hint="`hermes memory dreams` shows their ids") from error
    finally:
        await database.close()


EXTENSION = "reread"
POLL_SECONDS, REPORT_SECONDS = 0.5, 5.0


def reread(
    ctx: typer.Context,
    workspace: Annotated[str, typer.Argument(help="The workspace.")] = "hermes",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Restore retired conclusions and remove added ones.")] = False,
    json: AsJson = False,
) -> int:
    """Process all messages of a workspace again and add conclusions that earlier versions missed. Shows first what
    would change. An interrupted run resumes by itself; --undo stops it."""
    from hermes.transfer.remote import Remote  # loads httpx

    url, key, _ = server_of(ctx, None)
    remote = Remote(url, key, workspace)
    try:
        if EXTENSION not in remote.extensions():
            raise UsageError(f"{url} cannot read messages again: it is not a memory server of this version")
        if undo:
            remote.ask("DELETE", "ext/reread")
            return _end(remote.ask("GET", "ext/reread"), "undone", json=json)
        _show(workspace, remote.ask("GET", "ext/reread"))
        agree("Read them again?", "reading again", "read again", yes)
        remote.ask("POST", "ext/reread")
        return _end(_wait(remote), "read", json=json)
    finally:
        remote.close()


def _show(workspace: str, found: dict[str, Any]) -> None:
    note(f"{workspace} has {found['messages']:,} messages.")
    note(f"Of the newest {found['looked_at']:,}, {found['would_add']:,} sentences would become new conclusions:")
    for line in found["examples"]:
        note(f"  {printable(line)}")
    if found["was_deleted"]:
        note("Conclusions were deleted here. They may be added again from other messages.")


def _wait(remote: Remote) -> dict[str, Any]:
    """Wait until all messages are processed, and print progress. The server continues if this process ends."""
    printed_at = time.monotonic()
    while (found := remote.ask("GET", "ext/reread"))["left"]:
        if time.monotonic() - printed_at >= REPORT_SECONDS:
            printed_at = time.monotonic()
            note(f"{found['left']:,} left, {found['added']:,} added")
        time.sleep(POLL_SECONDS)
    return dict(found)


def _end(found: dict[str, Any], done: str, *, json: bool) -> int:
    if json:
        print_json({"outcome": done, **found})
    else:
        say(f"{done}: {found['added']:,} conclusions added, {found['retired']:,} retired in all")
    return 0


MAX_QUEUED_ENTRIES = 2000
"""Outbox entries above which queueing pauses until some are delivered."""
PROGRESS_SECONDS = 1.0
"""Interval between progress lines."""
QUEUEING_TIMEOUT_SECONDS, DELIVERY_TIMEOUT_SECONDS = 90.0, 10.0
"""How long to wait while no delivery succeeds. During queueing, the backfill then gives up; after it, a background
process delivers the rest."""
MAX_FAILURE_CHARS = 300
"""Longer reasons are cut in the output."""


class Result(Struct, frozen=True):
    """The outcome: what was found, what was queued, and how many outbox entries remain. `stuck` counts the overdue ones
    among them, and `reason` is the provider's last error, if known."""

    found: BackfillProgress
    taken: BackfillProgress
    is_whole: bool
    waiting: int
    stuck: int
    reason: str | None


def backfill(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be sent.")] = False,
    json: AsJson = False,
) -> int:
    """Send earlier sessions to the memory provider, each message once. Incognito sessions are left out. An interrupted
    run resumes. Exits with 1 while messages remain that the provider does not accept."""
    found = load_app(ctx)
    if found.settings.get(PROVIDER) == NONE:
        raise UsageError(NONE_CHOSEN, hint="`hermes memory setup` chooses one")
    if dry_run:
        counted = _count(with_store(found, lambda store: _look(found, store)))
        _print({"dry_run": True, **_numbers(counted)}, f"To be taken in: {_describe_count(counted)}.", json)
        return 0
    result = with_store(found, lambda store: _take_in(found, store))
    report = {
        **_numbers(result.taken),
        "refused": result.taken.refused,
        "left": result.found.messages - result.taken.messages - result.taken.refused,
        "waiting": result.waiting,
        "reason": result.reason,
    }
    _print({"dry_run": False, **report}, "\n".join(_describe(found, result)), json)
    return 0 if result.is_whole and not result.stuck else 1


def offer_backfill(found: App, dialog: Dialog, before: str) -> None:
    """Ask, after `setup`, whether to send earlier sessions to the provider. Asks only if the provider is new or has
    received nothing yet."""
    if found.settings.get(PROVIDER) == NONE or not found.home.state_file.exists():
        return
    sessions = with_store(found, lambda store: _look(found, store, before=before))
    if not sessions:
        return
    amount = f"This memory does not know {_describe_count(_count(sessions))} from before"
    if not dialog.can_ask:
        dialog.say(f"{amount}; `hermes memory backfill` takes that in.")
        return
    options = {"no": "`hermes memory backfill` does it later", "yes": "all of it; what was incognito stays out"}
    if dialog.choose(f"{amount}. Take it in?", options, "no") == "yes":
        for line in _describe(found, with_store(found, lambda store: _take_in(found, store))):
            dialog.say(line)


async def _look(found: App, store: Store, before: str | None = None) -> list[Earlier]:
    provider = _provider(found, store)
    try:
        if before == provider.name and await store.read(lambda tx: is_any_synced(tx, provider.name)):
            return []
        return await _backfill(found, provider).find()
    finally:
        await provider.close()


async def _take_in(found: App, store: Store) -> Result:
    """Queue and deliver all earlier sessions. Progress goes to standard error."""
    provider = _provider(found, store)
    deliveries = Deliveries(provider, new_owner(), MAX_LANES)
    work = _backfill(found, provider)

    async def wait_for_space() -> bool:
        return (
            await wait_for_deliveries(store, deliveries, MAX_QUEUED_ENTRIES, QUEUEING_TIMEOUT_SECONDS)
        ).entries <= MAX_QUEUED_ENTRIES

    try:
        sessions = await work.find()
        deliveries.start()
        taken, is_whole = await work.take_in(sessions, wait_for_space, _progress_printer(_count(sessions)))
        left = await wait_for_deliveries(store, deliveries, timeout_seconds=DELIVERY_TIMEOUT_SECONDS)
    finally:
        await deliveries.finish(0.0)
        await provider.close()
    stuck, reason = await store.read(lambda tx: overdue(tx, provider.outbox.queue, now=store.clock.now()))
    if left.entries:
        start_deliverer(found)
    return Result(_count(sessions), taken, is_whole, left.entries, stuck, reason)


def _provider(found: App, store: Store) -> ActiveProvider:
    provider = open_provider(found, store)
    assert provider is not None, "callers check that a provider is chosen"
    return provider


def _backfill(found: App, provider: ActiveProvider) -> Backfill:
    people = open_people(found)
    return Backfill(provider, people, partial(earlier_conversation, people, provider.store))


def _progress_printer(whole: BackfillProgress) -> Callable[[BackfillProgress], None]:
    """Return a callback that prints progress, at most once per `PROGRESS_SECONDS`."""
    printed_at = time.monotonic()

    def report(done: BackfillProgress) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= PROGRESS_SECONDS:
            printed_at = time.monotonic()
            note(f"{done.messages:,} of {_describe_count(whole)} taken in")

    return report


def _count(sessions: Sequence[Earlier]) -> BackfillProgress:
    return BackfillProgress(len(sessions), sum(one.messages for one in sessions))


def _numbers(counted: BackfillProgress) -> dict[str, Json]:
    return {"sessions": counted.sessions, "messages": counted.messages}


def _describe_count(counted: BackfillProgress) -> str:
    return f"{_several(counted.messages, 'message')} of {_several(counted.sessions, 'session')}"


def _several(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _describe(found: App, result: Result) -> list[str]:
    provider, lines = found.settings.get(PROVIDER), [f"Taken in: {_describe_count(result.taken)}."]
    if result.taken.refused:
        lines.append(
            f"Left out: {_several(result.taken.refused, 'message')}: {provider} is configured not to store messages."
        )
    if result.stuck:
        reason = one_line(result.reason or "no answer yet", MAX_FAILURE_CHARS)
        lines.append(f"{provider} accepts nothing now: {printable(reason)}")
    if not result.is_whole:
        lines.append("The rest is not queued yet; run `hermes memory backfill` again to continue.")
    if result.waiting:
        lines.append(f"Still to be delivered: {result.waiting:,}; `hermes memory outbox list` shows them.")
    return lines


def _print(value: Json, text: str, json: bool) -> None:
    if json:
        print_json(value)
    else:
        say(text)
