"""`hermes memory forget WORDS`: find what memory holds of something, show it, and delete it when that is confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec import Struct, to_builtins

from hermes.app import App
from hermes.cli.desk import open_plugin
from hermes.cli.dialog import TerminalDialog
from hermes.cli.forgetting import forget_all
from hermes.cli.output import note, print_json, printable, say
from hermes.cli.start import AsJson, load_app, with_store
from hermes.cli.table import print_table
from hermes.db.engine import Tx
from hermes.errors import UsageError
from hermes.memory.command_host import guarded
from hermes.memory.forgetting import Kept, find_kept, find_told
from hermes.memory.provider import MemoryPlugin
from hermes.memory.registry import NONE
from hermes.memory.values import Holding, Wording
from hermes.settings import PROVIDER
from hermes.store.store import Store

SHOWN = 50
LONGEST = 100
STAYS_HERE = (
    "Sessions keep what was said (`hermes sessions search` finds it, `hermes sessions delete` deletes it), but the "
    "agent does not look it up there any more. Notes in MEMORY.md and USER.md are yours to edit."
)


class Found(Struct, frozen=True):
    """What the provider holds, what the host has, and the other providers, which may hold more."""

    at_provider: Holding
    here: Kept
    not_asked: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self.here.is_empty and not self.at_provider.items


def forget(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(help="Words that all stand in what is to be forgotten.")],
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    json: AsJson = False,
) -> int:
    """Delete what memory holds of something. It is shown first; without a terminal nothing is deleted unless --yes.
    The code is 1 when it was to be deleted and something stays, or may."""
    app = load_app(ctx)
    wording = Wording(tuple(word for text in words for word in text.split()))
    if not wording.words:
        raise UsageError("there are no words to look for", hint="`hermes memory forget WORDS`")
    name = app.settings.get(PROVIDER)
    plugin = None if name == NONE else open_plugin(app, name)
    found = _find(app, plugin, wording)
    deletes = not found.is_empty and (yes or (not json and _is_confirmed(found)))
    stays = forget_all(app, plugin, wording, found.here) if deletes else list(found.at_provider.stays)
    stays += [_not_asked(one) for one in found.not_asked]
    if json:
        print_json({**to_builtins(found), "deleted": deletes, "stays": stays})
    else:
        _say_what_came(found, deletes, stays)
    return 1 if stays and (yes or deletes) else 0


def _find(app: App, plugin: MemoryPlugin | None, wording: Wording) -> Found:
    held = Holding()
    if plugin is not None:
        name = plugin.name
        held = guarded(name, "find_remembered", lambda: plugin.find_remembered(wording))

    def look(store: Store, tx: Tx) -> Found:
        others = [name for name in find_told(tx) if plugin is None or name != plugin.name]
        return Found(held, find_kept(store, tx, wording), tuple(others))

    return with_store(app, lambda store: store.read(lambda tx: look(store, tx)))


def _is_confirmed(found: Found) -> bool:
    """Show what was found, and ask where anybody can answer."""
    rows = [(one.kind, printable(one.about), _shorten(one.text)) for one in found.at_provider.items]
    rows += [("waits", f"for {printable(one.provider)}", _shorten(one.text)) for one in found.here.entries]
    if rows:
        print_table(["kind", "about", "text"], rows[:SHOWN])
    if len(rows) > SHOWN:
        say(f"and {len(rows) - SHOWN} more")
    if found.here.messages:
        say(f"{len(found.here.messages)} messages of this home that memory may know")
    dialog = TerminalDialog()
    if not dialog.can_ask:
        note("`--yes` deletes it.")
        return False
    for line in found.at_provider.stays:
        say(printable(line))
    return dialog.choose("Delete all of it?", {"no": "keep it", "yes": "for good"}, "no") == "yes"


def _say_what_came(found: Found, deletes: bool, stays: Sequence[str]) -> None:
    for line in stays:
        say(printable(line))
    if deletes:
        note(f"{'Deleted what could be deleted.' if stays else 'Forgotten.'} {STAYS_HERE}")
    elif not found.is_empty:
        note("Nothing was deleted.")
    else:
        note("Nothing else was found in which these words stand." if stays else "Nothing is held.")


def _not_asked(provider: str) -> str:
    return (
        f"{provider} may hold more and was not asked: `HERMES_MEMORY_PROVIDER={provider} hermes memory forget WORDS` "
        "asks it"
    )


def _shorten(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
