"""`hermes memory list`, `search`, `why` and `edit`: view and correct what memory holds about the owner."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

import typer
from msgspec import to_builtins

from hermes.app import App
from hermes.cli.outbox import start_deliverer
from hermes.cli.output import note, one_line, print_json, printable, say, saying, show_time
from hermes.cli.start import AsJson, load_app, with_store
from hermes.cli.table import print_table
from hermes.db.leases import new_owner
from hermes.memory.book import MemoryBook, Remembering, Settled, describe_change
from hermes.memory.values import FactChange, Wording
from hermes.owner.memory import OwnMemory
from hermes.store.store import Store

T = TypeVar("T")
MAX_TEXT_CHARS = 100
"""Longer entries are cut in tables."""
DELIVERY_TIMEOUT_SECONDS = 5.0
"""Time limit for delivering a change; a background process does the rest."""
QUEUED = "It is saved here and sent to the memory server as soon as that answers."
REFUSED = "The memory server refused it: `hermes memory outbox list` shows why."
EntryId = Annotated[str, typer.Argument(metavar="ID", help="The entry's id, as `hermes memory list` shows it.")]


def list_(
    ctx: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(help="Only entries that contain all of these words.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many entries, the notes first.")] = 50,
    json: AsJson = False,
) -> int:
    """List what memory holds about you: notes and the provider's facts, each with id and origin. Exits with 1 if some
    of it cannot be shown."""
    wording = Wording(tuple(word for text in words or () for word in text.split()))
    logging.getLogger("hermes.memory").addHandler(logging.NullHandler())  # its warnings are part of the output
    page = work_on(load_app(ctx), lambda book: book.page(wording if wording.words else None, limit=limit))
    if json:
        print_json(to_builtins(page))
        return 1 if page.remarks else 0
    rows = [(one.id, one_line(printable(one.text), MAX_TEXT_CHARS), _origin(one)) for one in page.entries]
    if rows:
        print_table(["id", "text", "from"], rows)
    for remark in page.remarks:
        note(f"hermes: {printable(remark)}")
    if page.after is not None:
        note(f"Only {limit} entries are shown; `--limit` shows more.")
    elif not rows and not page.remarks:
        note(
            "Memory holds nothing with all of these words; `hermes sessions search` searches messages."
            if words
            else "Memory is empty."
        )
    return 1 if page.remarks else 0


def search(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(help="Entries must contain all of these words.")],
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many entries, the notes first.")] = 50,
    json: AsJson = False,
) -> int:
    """Search what memory holds about you. `hermes sessions search WORDS` searches messages."""
    return list_(ctx, words, limit, json)


def why(ctx: typer.Context, entry_id: EntryId, json: AsJson = False) -> None:
    """Show where an entry comes from: its file or messages, and earlier versions of a corrected entry."""

    async def find(book: MemoryBook) -> tuple[Remembering, dict[str, object], Sequence[FactChange], dict[str, str]]:
        entry = await book.find(entry_id)
        sources = await book.sources(entry)
        details: dict[str, object] = {"sources": sources, "corrected": await book.corrected_from(entry)}
        return entry, details, await book.changes(entry), await book.titles(sources)

    entry, details, changes, titles = work_on(load_app(ctx), find)
    found = {"entry": to_builtins(entry), **to_builtins(details), "changes": to_builtins(changes)}
    if json:
        print_json(found)
        return
    say(printable(entry.text))
    say(printable(_origin(entry)))
    for source in found["sources"]:
        title = titles.get(source["session_id"], "")
        named = f" “{one_line(title, MAX_TEXT_CHARS)}”" if title else ""
        where = f"session {source['session_id']}{named}: " if source["session_id"] else ""
        say(printable(f"learnt from {where}{one_line(source['text'], MAX_TEXT_CHARS)}"))
    for wrong, at in found["corrected"]:
        say(printable(f"corrected {show_time(at)}; it said: {wrong}"))
    for one in changes:
        say(printable(describe_change(one)))


def edit(
    ctx: typer.Context,
    entry_id: EntryId,
    text: Annotated[list[str], typer.Argument(help="The correct text.")],
    json: AsJson = False,
) -> int:
    """Correct an entry for good. Exits with 1 if the memory server refuses the change."""

    async def change(book: MemoryBook) -> tuple[Remembering, Settled]:
        entry = await book.find(entry_id)
        return entry, await book.correct(entry, " ".join(text))

    entry, settled = work_on(load_app(ctx), change)
    if json:
        print_json({"id": entry.id, "was": entry.text, "outcome": settled})
    else:
        note(f"Corrected. It said: {one_line(printable(entry.text), MAX_TEXT_CHARS)}")
        print_outcome(settled)
    return 1 if settled == "refused" else 0


def print_outcome(settled: Settled) -> None:
    """Print what happened to a change that is not done yet."""
    if settled != "done":
        note(QUEUED if settled == "queued" else REFUSED)


def work_on(app: App, work: Callable[[MemoryBook], Awaitable[T]]) -> T:
    """Run `work` on the owner's memory. A background process delivers what remains."""

    async def run(store: Store) -> tuple[T, bool]:
        memory, timeout = OwnMemory(app, store, new_owner(), lanes=1), 0.0
        try:
            done, timeout = await work(memory.book), DELIVERY_TIMEOUT_SECONDS
        finally:
            all_synced = await memory.finish(timeout)
        return done, all_synced

    with saying("Reading memory; its server may have to start first"):
        done, all_synced = with_store(app, run)
    if not all_synced:
        start_deliverer(app)
    return done


def _origin(entry: Remembering) -> str:
    if entry.target is not None:
        return entry.origin
    ended = f"no longer so since {show_time(entry.until)}" if entry.until else ""
    return ", ".join(filter(None, (entry.origin, show_time(entry.at) if entry.at else "", ended)))
