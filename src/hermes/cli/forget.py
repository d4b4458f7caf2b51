"""`hermes memory forget WORDS`: find what memory holds of something, show it, and delete it when that is confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import sleep
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
from hermes.db.leases import Lease
from hermes.db.queue_items import is_held
from hermes.errors import UsageError
from hermes.memory.command_host import guarded
from hermes.memory.forgetting import Kept, find_kept, find_told, forget_kept, mark_forgotten
from hermes.memory.provider import MemoryPlugin
from hermes.memory.registry import NONE
from hermes.memory.values import Holding, Wording
from hermes.settings import PROVIDER
from hermes.store.store import Store

MOST_ROUNDS = 100
"""How often a provider is asked for more: each time it shows a few hundred things at most."""
SHOWN = 50
LONGEST = 100
PATIENCE, LOOK_EVERY = 65, 1.0
"""How often a delivery that is under way is looked at, a little longer than it may take, and the seconds between."""
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
        return not (self.at_provider.items or self.here.entries or self.here.messages)


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
    stays = _delete(app, plugin, wording, found) if deletes else list(found.at_provider.stays)
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


def _delete(app: App, plugin: MemoryPlugin | None, wording: Wording, found: Found) -> list[str]:
    """Here first, so that nothing is told again; then there, until nothing is found any more. What stays, or may."""

    def forget_here(store: Store, tx: Tx) -> list[Lease]:
        held = forget_kept(store, tx, found.here, wording, now=app.clock.now())
        _mark(app, tx)
        return held

    held = with_store(app, lambda store: store.write(lambda tx: forget_here(store, tx)))
    stays = _wait_for(app, held)
    if plugin is None:
        return stays
    name = plugin.name
    left = guarded(name, "find_remembered", lambda: plugin.find_remembered(wording))
    for _ in range(MOST_ROUNDS):
        if not left.items:
            break
        guarded(name, "forget", partial(plugin.forget, left.items))
        left = guarded(name, "find_remembered", lambda: plugin.find_remembered(wording))
    # Again: what a running conversation fetched meanwhile may still hold it.
    with_store(app, lambda store: store.write(lambda tx: _mark(app, tx)))
    more = [f"{len(left.items)} or more things are still at {name}; the same command goes on"] if left.items else []
    return [*stays, *left.stays, *more]


def _wait_for(app: App, held: Sequence[Lease]) -> list[str]:
    """Wait until what was being delivered has arrived or failed, so that it can be found; what may still arrive."""

    def look(tx: Tx) -> bool:
        return any(is_held(tx, one, now=app.clock.now()) for one in held)

    for turn in range(PATIENCE):
        if not held or not with_store(app, lambda store: store.read(look)):
            return []
        if turn == 0:
            note("Some of it is being delivered right now. Waiting for that …")
        sleep(LOOK_EVERY)
    return ["some of it was being delivered and may still arrive: run the same command again in a minute"]


def _mark(app: App, tx: Tx) -> None:
    name = app.settings.get(PROVIDER)
    if name != NONE:
        mark_forgotten(tx, name, now=app.clock.now())
