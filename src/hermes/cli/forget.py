"""`hermes memory forget WORDS`: find what memory holds about something, show it, and delete it after confirmation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

import typer
from msgspec import to_builtins

from hermes.app import App
from hermes.cli.desk import open_plugin
from hermes.cli.dialog import TerminalDialog
from hermes.cli.memory_book import print_outcome, work_on
from hermes.cli.output import note, one_line, print_json, printable, say, saying
from hermes.cli.start import AsJson, load_app
from hermes.cli.table import print_table
from hermes.errors import UsageError
from hermes.memory.book import MemoryBook, Remembering
from hermes.memory.registry import NONE
from hermes.memory.values import FactSource, Remembered, Wording
from hermes.owner.forgetting import ForgettingNews, FoundEverywhere, find_everywhere, forget_everywhere
from hermes.settings import PROVIDER

MAX_ROWS = 50
MAX_TEXT_CHARS = 100
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
