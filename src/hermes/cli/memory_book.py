"""`hermes memory list`, `why` and `edit`: what memory holds of the owner, to be seen and corrected."""

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
SHOWN = 100
"""Characters of an entry that a table shows."""
DELIVERED = 5.0
"""Seconds that a change is delivered for; the rest is left to the background."""
QUEUED = "It is saved here, and reaches the memory server as soon as that answers."
REFUSED = "The memory server refused it: `hermes memory outbox list` says why."
EntryId = Annotated[str, typer.Argument(metavar="ID", help="The entry's id, as `hermes memory list` shows it.")]


def list_(
    ctx: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(help="Only what holds all of these words.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many entries, the notes first.")] = 50,
    json: AsJson = False,
) -> int:
    """What memory holds of you: notes, and the provider's facts, each with its id and where it comes from. The code is
    1 when something of it cannot be shown."""
    wording = Wording(tuple(word for text in words or () for word in text.split()))
    logging.getLogger("hermes.memory").addHandler(logging.NullHandler())  # what it would print stands in the remarks
    page = work_on(load_app(ctx), lambda book: book.page(wording if wording.words else None, limit=limit))
    if json:
        print_json(to_builtins(page))
        return 1 if page.remarks else 0
    rows = [(one.id, one_line(printable(one.text), SHOWN), _origin(one)) for one in page.entries]
    if rows:
        print_table(["id", "text", "from"], rows)
    for remark in page.remarks:
        note(f"hermes: {printable(remark)}")
    if page.after is not None:
        note(f"There is more: `--limit` shows more than {limit}.")
    elif not rows and not page.remarks:
        note(
            "Nothing is held in which all of this stands; `hermes sessions search` searches what was said."
            if words
            else "Nothing is held."
        )
    return 1 if page.remarks else 0


def search(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(help="What is looked for must hold all of these words.")],
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many entries, the notes first.")] = 50,
    json: AsJson = False,
) -> int:
    """Search what memory holds of you. `hermes sessions search WORDS` searches what was said."""
    return list_(ctx, words, limit, json)


def why(ctx: typer.Context, entry_id: EntryId, json: AsJson = False) -> None:
    """Where something in memory comes from: the file, or what was said, and what it said before it was corrected."""

    async def find(book: MemoryBook) -> tuple[Remembering, dict[str, object], Sequence[FactChange], dict[str, str]]:
        entry = await book.find(entry_id)
        sources = await book.sources(entry)
        told: dict[str, object] = {"sources": sources, "corrected": await book.corrected_from(entry)}
        return entry, told, await book.changes(entry), await book.titles(sources)

    entry, told, changes, titles = work_on(load_app(ctx), find)
    found = {"entry": to_builtins(entry), **to_builtins(told), "changes": to_builtins(changes)}
    if json:
        print_json(found)
        return
    say(printable(entry.text))
    say(printable(_origin(entry)))
    for source in found["sources"]:
        title = titles.get(source["session_id"], "")
        named = f" “{one_line(title, SHOWN)}”" if title else ""
        where = f"session {source['session_id']}{named}: " if source["session_id"] else ""
        say(printable(f"learnt from {where}{one_line(source['text'], SHOWN)}"))
    for wrong, at in found["corrected"]:
        say(printable(f"corrected {show_time(at)}; it said: {wrong}"))
    for one in changes:
        say(printable(describe_change(one)))


def edit(
    ctx: typer.Context,
    entry_id: EntryId,
    text: Annotated[list[str], typer.Argument(help="What holds instead.")],
    json: AsJson = False,
) -> int:
    """Correct something in memory, for good. The code is 1 when the memory server refuses it."""

    async def change(book: MemoryBook) -> tuple[Remembering, Settled]:
        entry = await book.find(entry_id)
        return entry, await book.correct(entry, " ".join(text))

    entry, settled = work_on(load_app(ctx), change)
    if json:
        print_json({"id": entry.id, "was": entry.text, "outcome": settled})
    else:
        note(f"Corrected. It said: {one_line(printable(entry.text), SHOWN)}")
        tell_outcome(settled)
    return 1 if settled == "refused" else 0


def tell_outcome(settled: Settled) -> None:
    """Say of a change that is not done yet what became of it."""
    if settled != "done":
        note(QUEUED if settled == "queued" else REFUSED)


def work_on(app: App, work: Callable[[MemoryBook], Awaitable[T]]) -> T:
    """Do something with what memory holds of the owner; what is left to deliver then goes on in the background."""

    async def run(store: Store) -> tuple[T, bool]:
        memory, patience = OwnMemory(app, store, new_owner(), lanes=1), 0.0
        try:
            done, patience = await work(memory.book), DELIVERED
        finally:
            all_told = await memory.finish(patience)
        return done, all_told

    with saying("Looking through memory; its server may have to be started first"):
        done, all_told = with_store(app, run)
    if not all_told:
        start_deliverer(app)
    return done


def _origin(entry: Remembering) -> str:
    if entry.target is not None:
        return entry.origin
    ended = f"no longer so since {show_time(entry.until)}" if entry.until else ""
    return ", ".join(filter(None, (entry.origin, show_time(entry.at) if entry.at else "", ended)))
