"""`hermes memory list`, `search`, `why` and `edit`: view and correct what memory holds about the owner.

`hermes memory forget WORDS`: find what memory holds about something, show it, and delete it after confirmation.

`hermes memory explain`: what memory added to a turn, with its source, age, cuts and what came too late.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, TypeVar

import typer
from msgspec import to_builtins

from hermes.app import App
from hermes.cli.dialog import TerminalDialog
from hermes.cli.outbox import start_deliverer
from hermes.cli.output import note, one_line, print_json, print_table, printable, say, saying, show_time
from hermes.cli.plugin_console import open_plugin
from hermes.cli.start import AsJson, load_app, read_store, with_store
from hermes.db.engine import Tx
from hermes.db.leases import new_owner
from hermes.errors import UsageError
from hermes.memory.book import MemoryBook, Remembering, Settled, describe_change
from hermes.memory.registry import NONE
from hermes.memory.values import FactChange, FactSource, Remembered, Wording
from hermes.owner.forgetting import ForgettingNews, FoundEverywhere, find_everywhere, forget_everywhere
from hermes.owner.memory import OwnMemory
from hermes.settings import PROVIDER
from hermes.store.injections import InjectedPart, Injection, find_injection, lines_of
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


MAX_ROWS = 50

EDIT_INSTEAD = "To correct something instead: `hermes memory search WORDS` shows its id, `hermes memory edit ID TEXT`."
STAYS_HERE = (
    "Sessions keep the messages (`hermes sessions search` finds them, `hermes sessions delete` deletes them), but the "
    "agent no longer uses them there."
)


def forget(
    ctx: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(help="Words that must all occur in an entry.")] = None,
    entry_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Only the entry with this id, as `hermes memory list` shows it."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: AsJson = False,
) -> int:
    """Delete what memory holds about something. Shows it first; without a terminal, deletes only with --yes. Exits with
    1 if nothing was deleted or something remains."""
    app = load_app(ctx)
    wording = Wording(tuple(word for text in words or () for word in text.split()))
    if bool(wording.words) == bool(entry_id):
        raise UsageError("give words to look for, or an id", hint="`hermes memory forget WORDS`, or `--id ID`")
    if entry_id:
        return _forget_one(app, entry_id, yes=yes, as_json=json)
    name = app.settings.get(PROVIDER)
    plugin = None if name == NONE else open_plugin(app, name)
    progress = ForgettingNews(note, saying)
    found, remarks = find_everywhere(app, plugin, wording, progress)
    deletes = not found.is_empty and (yes or (not json and _is_confirmed(found)))
    stays = list(found.at_provider.stays)
    if deletes:
        stays = forget_everywhere(app, plugin, wording, found, progress)
    stays += remarks
    if json:
        print_json({**to_builtins(found), "deleted": deletes, "stays": stays})
    else:
        _print_outcome(found, wording, deletes, stays)
    if not found.is_empty and not deletes and not json:
        return 1
    return 1 if stays and (yes or deletes) else 0


def _forget_one(app: App, entry_id: str, *, yes: bool, as_json: bool) -> int:
    """Forget one entry. For a fact, also the messages it was learnt from and the replies to them."""

    async def look(book: MemoryBook) -> tuple[Remembering, Sequence[FactSource], list[str], list[str]]:
        entry = await book.find(entry_id)
        sources = await book.sources(entry)
        said = [*sources, *await book.late(entry, sources)]
        return entry, sources, [source.text for source in said], await book.replies(said)

    entry, sources, said, replies = work_on(app, look)
    if not as_json:
        going = [("entry", entry.text), *(("message", text) for text in said), *(("reply", text) for text in replies)]
        print_table(["kind", "text"], [(kind, _shorten(text)) for kind, text in going])
    done, answer = None, "yes" if yes else "no" if as_json else _ask("Forget it?", {"edit": "correct it instead"})
    if answer == "edit":
        return _correct(app, entry)
    if answer == "yes":
        done = work_on(app, lambda book: book.forget(entry, sources))
    stays = [*(source.text for source in sources if not source.can_go), *(done.stays if done else ())]
    if as_json:
        outcome = None if done is None else done.settled
        print_json({**to_builtins(entry), "deleted": done is not None, "outcome": outcome, "stays": stays})
    else:
        note("Nothing was deleted." if done is None else "Forgotten.")
        print_outcome("done" if done is None else done.settled)
        for line in () if done is None else done.stays:
            say(printable(line))
    if done is None:
        return 0 if as_json else 1
    return 1 if done.settled == "refused" or stays else 0


def _correct(app: App, entry: Remembering) -> int:
    """Prompt for the correct text and store it."""
    right = TerminalDialog().ask("Correct text", entry.text)
    settled = work_on(app, lambda book: book.correct(entry, right))
    note("Corrected." if right != entry.text else "Nothing was changed.")
    print_outcome(settled)
    return 1 if settled == "refused" else 0


def _ask(question: str, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """Ask what to do with the entries shown. Returns "no" if nobody can be asked."""
    dialog = TerminalDialog()
    if not dialog.can_ask:
        note("`--yes` deletes it.")
        return "no"
    return dialog.choose(question, {"no": "keep it", "yes": "for good", **more}, "no")


def _is_confirmed(found: FoundEverywhere) -> bool:
    """Show what was found and ask for confirmation."""
    rows = _merged(found.at_provider.items)
    hosts = {"this home": found.here, **{f"profile {name}": kept for name, kept in found.profiles.items()}}
    for kept in hosts.values():
        rows += [("waits", f"for {printable(one.provider)}", _shorten(one.text)) for one in kept.entries]
    if rows:
        print_table(["kind", "about", "text"], rows[:MAX_ROWS])
    if len(rows) > MAX_ROWS:
        say(f"and {len(rows) - MAX_ROWS} more")
    for name, kept in hosts.items():
        if kept.messages:
            say(f"messages of {name} that memory may know: {len(kept.messages)}")
    if TerminalDialog().can_ask:
        for line in found.at_provider.stays:
            say(printable(line))
    if rows:
        note(EDIT_INSTEAD)
    return _ask("Delete all of it?") == "yes"


def _merged(items: Sequence[Remembered]) -> list[tuple[str, str, str]]:
    """Return one row per text; several people may have said or known it."""
    abouts: dict[tuple[str, str], Counter[str]] = {}
    for one in items:
        abouts.setdefault((one.kind, one.text), Counter())[printable(one.about)] += 1
    return [
        (kind, "; ".join(f"{about} ×{times}" if times > 1 else about for about, times in whose.items()), _shorten(text))
        for (kind, text), whose in abouts.items()
    ]


def _print_outcome(found: FoundEverywhere, wording: Wording, deletes: bool, stays: Sequence[str]) -> None:
    for line in stays:
        say(printable(line))
    if deletes:
        note(f"{'Deleted what could be deleted.' if stays else 'Forgotten.'} {STAYS_HERE}")
    elif not found.is_empty:
        note("Nothing was deleted.")
    else:
        nothing = "Nothing else was found" if stays else "Memory holds nothing"
        note(f"{nothing} that contains all of these words: {_shorten(' '.join(wording.words))}")


def _shorten(text: str) -> str:
    return one_line(printable(text), MAX_TEXT_CHARS)


def explain(
    ctx: typer.Context,
    turn: Annotated[int | None, typer.Argument(help="Number of the turn; default: the last one.")] = None,
    session: Annotated[
        str | None,
        typer.Option(help="Session: id, start of the id, or title; default: the last active one."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show what memory added to a turn, part by part, and what did not arrive in time."""

    def find(store: Store, tx: Tx) -> Injection:
        return find_injection(tx, None if session is None else store.sessions.find(tx, session).id, turn)

    found = read_store(load_app(ctx), find)
    if json:
        print_json(to_builtins(found))
    else:
        _print(found)


def _print(found: Injection) -> None:
    say(f"turn {found.turn} of {found.session_id}, {show_time(found.at)}, memory {found.provider}")
    say(f"recall took {found.seconds * 1000:.0f} ms")
    for name, why in found.missed.items():
        say(printable(f"missing: {name}: {why}"))
    if not any(part.text for part in found.parts):
        say("Memory added nothing to this turn.")
    rows = [
        (part.layer, _age(found.at, part.as_of), str(part.tokens), str(part.cut) if part.cut else "")
        for part in found.parts
    ]
    if rows:
        print_table(["part", "fetched", "tokens", "characters cut"], [tuple(map(printable, row)) for row in rows])
    for part in found.parts:
        if part.text or part.left_out:
            say()
        for line in (*_with_sources(part), *(f"left out of {part.layer}: {one}" for one in part.left_out)):
            say(printable(line))


def _with_sources(part: InjectedPart) -> Iterator[str]:
    """Yield the lines of a part; below each quote, the reason for including it."""
    for line in lines_of(part):
        if line.text:
            yield line.text
        if line.why:
            yield f"    {line.why}" if line.text else line.why


def _age(now: float, as_of: float | None) -> str:
    if as_of is None:
        return "?"
    seconds = max(0.0, now - as_of)
    return f"{seconds:.0f} s before" if seconds < 600 else f"{seconds / 60:.0f} min before"
