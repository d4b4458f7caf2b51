"""`hermes memory forget WORDS`: find what memory holds of something, show it, and delete it when that is confirmed."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer
from msgspec import Struct, to_builtins

from hermes.app import App
from hermes.cli.desk import open_plugin
from hermes.cli.dialog import TerminalDialog
from hermes.cli.output import note, print_json, printable, say
from hermes.cli.start import AsJson, load_app, with_store
from hermes.cli.table import print_table
from hermes.db.engine import Tx
from hermes.errors import UsageError
from hermes.memory.command_host import guarded
from hermes.memory.forgetting import Kept, find_kept, forget_kept, mark_forgotten
from hermes.memory.provider import MemoryPlugin
from hermes.memory.registry import NONE
from hermes.memory.values import Holding, Wording
from hermes.settings import PROVIDER
from hermes.store.store import Store

MOST_ROUNDS = 100
"""How often a provider is asked for more: each time it shows a few hundred things at most."""
SHOWN = 50
LONGEST = 100
STAYS_HERE = (
    "Sessions keep what was said (`hermes sessions search` finds it, `hermes sessions delete` deletes it), but memory "
    "does not know of it any more. Notes in MEMORY.md and USER.md are yours to edit."
)


class Found(Struct, frozen=True):
    """What the provider holds, and what the host has."""

    at_provider: Holding
    here: Kept

    @property
    def is_empty(self) -> bool:
        return not (self.at_provider.items or self.here.entries or self.here.messages)


def forget(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(help="Words that all stand in what is to be forgotten.")],
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    json: AsJson = False,
) -> None:
    """Delete what memory holds of something. It is shown first; without a terminal nothing is deleted unless --yes."""
    app = load_app(ctx)
    wording = Wording(tuple(word for text in words for word in text.split()))
    if not wording.words:
        raise UsageError("there are no words to look for", hint="`hermes memory forget WORDS`")
    name = app.settings.get(PROVIDER)
    plugin = None if name == NONE else open_plugin(app, name)
    found = _find(app, plugin, wording)
    deletes = not found.is_empty and (yes or (not json and _is_confirmed(found)))
    if deletes:
        _delete(app, plugin, wording, found)
    if json:
        print_json({**to_builtins(found), "deleted": deletes})
    elif not deletes and not found.is_empty:
        note("Nothing was deleted.")
    elif found.is_empty:
        _say_what_stays(found)
        note("Memory holds nothing else in which these words stand." if found.at_provider.stays else "Nothing is held.")
    else:
        note(f"Forgotten. {STAYS_HERE}")


def _find(app: App, plugin: MemoryPlugin | None, wording: Wording) -> Found:
    held = Holding()
    if plugin is not None:
        name = plugin.name
        held = guarded(name, "find_remembered", lambda: plugin.find_remembered(wording))
    kept = with_store(app, lambda store: store.read(lambda tx: find_kept(store, tx, wording)))
    return Found(held, kept)


def _is_confirmed(found: Found) -> bool:
    """Show what was found, and ask where anybody can answer."""
    items = found.at_provider.items
    rows = [(one.kind, printable(one.about), _shorten(one.text)) for one in items[:SHOWN]]
    if rows:
        print_table(["kind", "about", "text"], rows)
    if len(items) > SHOWN:
        say(f"and {len(items) - SHOWN} more")
    if found.here.entries:
        say(f"{len(found.here.entries)} entries that wait to be delivered")
    if found.here.messages:
        say(f"{len(found.here.messages)} messages of this home that memory may know")
    _say_what_stays(found)
    dialog = TerminalDialog()
    if not dialog.can_ask:
        note("`--yes` deletes it.")
        return False
    return dialog.choose("Delete all of it?", {"no": "keep it", "yes": "for good"}, "no") == "yes"


def _say_what_stays(found: Found) -> None:
    for line in found.at_provider.stays:
        say(printable(line))


def _shorten(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _delete(app: App, plugin: MemoryPlugin | None, wording: Wording, found: Found) -> None:
    """Here first, so that nothing is told again; then there, until nothing is found any more."""

    def forget_here(store: Store, tx: Tx) -> None:
        forget_kept(store, tx, found.here, wording)
        _mark(app, tx)

    with_store(app, lambda store: store.write(lambda tx: forget_here(store, tx)))
    if plugin is None:
        return
    name, items = plugin.name, found.at_provider.items
    for _ in range(MOST_ROUNDS):
        if not items:
            break
        guarded(name, "forget", partial(plugin.forget, items))
        items = guarded(name, "find_remembered", lambda: plugin.find_remembered(wording)).items
    # Again: what a running conversation fetched meanwhile may still hold it.
    with_store(app, lambda store: store.write(lambda tx: _mark(app, tx)))


def _mark(app: App, tx: Tx) -> None:
    name = app.settings.get(PROVIDER)
    if name != NONE:
        mark_forgotten(tx, name, now=app.clock.now())
