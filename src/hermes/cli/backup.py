"""`hermes backup` and `hermes restore`: save a home with its memory in one file, and restore it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins

from hermes.cli.dialog import agree
from hermes.cli.output import note, print_json, printable, say, saying, show_time
from hermes.cli.start import AsJson, load_app
from hermes.errors import NotFoundError
from hermes.home import Home
from hermes.owner.backup import Manifest, make_backup
from hermes.owner.restoring import check_restore, restore_backup

PROGRESS_SECONDS = 2.0
"""Interval between progress lines."""
SECRETS = "It contains your keys and all conversations, unencrypted: keep it where only you can read it."


def backup(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file, or a folder for one (default: this folder).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: AsJson = False,
) -> None:
    """Save the home in one file: settings, keys, notes, sessions, plugins and memory, with all profiles, or with -p one
    profile without the shared memory. Nothing has to be stopped."""
    app = load_app(ctx)
    target = file or Path()
    if not app.home.path.is_dir():
        raise NotFoundError(f"nothing to save: {app.home.path} does not exist")
    with saying("Saving"):
        path, made = make_backup(app, target, replace=force, progress=ProgressLines("saved").tell)
    if json:
        print_json({"file": str(path), "bytes": path.stat().st_size, **_shown(made), "skipped": made.skipped})
        return
    say(f"Saved {_describe(made)} in {path} ({path.stat().st_size / 1_000_000:,.1f} MB), and read it back whole.")
    say(SECRETS)
    for line in made.skipped:
        note(f"hermes: not saved: {printable(line)}")


def restore(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `hermes backup` wrote.")],
    force: Annotated[bool, typer.Option("-y", "--yes", "--force", help="Do not ask.")] = False,
    json: AsJson = False,
) -> None:
    """Replace the home with a backup, after checking the whole file. The previous home is kept beside it."""
    home = Home.find(os.environ, ctx.obj)  # the profile does not have to exist
    file = file.expanduser().absolute()
    found = check_restore(home, file)
    if not json:
        say(f"{file}: {_describe(found)} of {printable(found.home)}, saved {show_time(found.made_at)}.")
    if home.path.is_dir() and any(home.path.iterdir()):
        agree(f"Replace {home.path} with it? The current home is kept beside it.", "restoring", "changed", force)
    with saying("Restoring"):
        done = restore_backup(home, file, ProgressLines("restored").tell)
    if json:
        print_json({"home": str(home.path), "kept": done.kept, "outside": dict(done.outside), **_shown(found)})
        return
    say(f"Restored {home.path}.")
    for old, kept in done.kept.items():
        say(f"The previous content of {old} is in {kept}; delete it when you no longer need it.")
    for now, before in done.outside.items():
        say(f"{now} was at {printable(before)}; move it back if it still belongs there.")


class ProgressLines:
    """Prints progress of long work to standard error every few seconds, at a terminal only."""

    def __init__(self, done: str) -> None:
        self._done = done
        self._next_at = time.monotonic() + PROGRESS_SECONDS

    def tell(self, done_bytes: int, name: str) -> None:
        if time.monotonic() >= self._next_at and sys.stderr.isatty():
            self._next_at = time.monotonic() + PROGRESS_SECONDS
            note(f"{self._done} {done_bytes / 1_000_000:,.0f} MB; now {printable(name)}")


def _describe(found: Manifest) -> str:
    counted = [(len(found.files), "files")]
    for database, what in (("state.db", "sessions"), ("state.db", "messages"), ("memory.db", "conclusions")):
        if rows := found.count_rows(database):
            counted.append((rows.get(what, 0), what))
    return ", ".join(f"{count:,} {what.removesuffix('s') if count == 1 else what}" for count, what in counted)


def _shown(found: Manifest) -> dict[str, object]:
    held = {database: found.count_rows(f"{database}.db") for database in ("state", "memory")}
    fields = to_builtins(found)
    return {**{name: fields[name] for name in ("version", "made_at", "profile")}, "files": len(found.files), **held}
