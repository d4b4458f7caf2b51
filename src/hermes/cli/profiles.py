"""`hermes profiles`: list, create, show and delete profiles. Each is a separate home."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from hermes.cli.dialog import agree
from hermes.cli.output import note, print_json, print_table, printable, say, show_time
from hermes.cli.start import AsJson
from hermes.clock import SystemClock
from hermes.configuration import read_configuration
from hermes.errors import HermesError, HomeError, UsageError
from hermes.home import PROFILES, Home
from hermes.settings import BASE_URL, MODEL, PROVIDER
from hermes.store.health import lend_tables, open_unchanged
from hermes.store.inbox import running_gateway

app = typer.Typer(help="List, create, show and delete profiles. Each is a separate home.", rich_markup_mode=None)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The profile; `default` is the default home.")]
NOT_DELETABLE = "the default home is not a profile and cannot be deleted here"
PROFILE_LOCK_TIMEOUT_SECONDS = 5.0


class ProfileContents(Struct, frozen=True):
    """Contents of a profile's home. If its store cannot be read, `problem` says why and the counts are 0."""

    name: str
    path: str
    last_used: float | None
    sessions: int = 0
    messages: int = 0
    bytes: int = 0
    gateway_runs: bool = False
    problem: str = ""


@app.callback(invoke_without_command=True)
def profiles(ctx: typer.Context, json: AsJson = False) -> None:
    """List, create, show and delete profiles. Each is a separate home."""
    if ctx.invoked_subcommand is None:
        list_profiles(json)


@app.command("list")
def list_profiles(json: AsJson = False) -> None:
    """List the profiles; `*` marks the one used without -p."""
    here = Home.find(os.environ)
    found = [(home, _last_used(home)) for home in here.all()]
    if json:
        print_json([{"name": home.name, "path": str(home.path), "last_used": used} for home, used in found])
        return
    rows = [
        (
            f"{home.name}{' *' if home.path == here.path else ''}",
            "never" if used is None else show_time(used),
            str(home.path),
        )
        for home, used in found
    ]
    print_table(("profile", "last used", "home"), rows)


@app.command("create")
def create_profile(name: NameArgument) -> None:
    """Create a profile: a separate home with its own settings, sessions, notes and plugins."""
    home = Home.find(os.environ, name)
    if home.path.exists():
        raise UsageError(f"the profile '{name}' exists already", hint=f"`hermes profiles show {name}` shows it")
    home.ensure()
    say(f"Created {home.path}. `hermes -p {name} chat` uses it. It has default settings;")
    say(f"`hermes -p {name} config set NAME VALUE` changes them. The memory server is shared by all profiles.")


@app.command("show")
def show_profile(name: NameArgument, json: AsJson = False) -> None:
    """Show a profile: its model and memory settings, its sessions, its size on disk."""
    home = Home.find_existing(os.environ, name)
    held, settings = _look(home), _settings_of(home)
    if json:
        print_json({**to_builtins(held), **settings})
        return
    say(f"{held.name} · {held.path}")
    for key, value in settings.items():
        say(f"{key}: {printable(value) or '(default)'}")
    say(_describe(held))


@app.command("delete")
def delete_profile(
    name: NameArgument, yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False
) -> None:
    """Delete a profile and everything in its home. Shows first what is deleted and what stays."""
    home = Home.find_existing(os.environ, name)
    if home.profile is None:
        raise UsageError(NOT_DELETABLE, hint=f"It is {home.path}")
    if home.path == Home.find(os.environ).path:
        raise UsageError(f"HERMES_HOME names the profile '{name}'", hint="Unset it, so that another home is in use")
    held = _look(home)
    if held.gateway_runs:
        raise UsageError(f"a gateway runs in '{name}'", hint=f"`hermes -p {name} gateway stop` ends it")
    say(f"This deletes {held.path}: its notes, settings, keys, plugins and logs, and {_describe(held)}.")
    say(f"Synced messages stay with the memory provider; before, `hermes -p {name} memory forget WORDS` removes them.")
    agree(f"Delete the profile '{name}' for good?", "deleting", "deleted", yes)
    _delete(home.path)
    say("Deleted.")


def _last_used(home: Home) -> float | None:
    """Return when the home's store was last written, or None if it has no store."""
    times = [path.stat().st_mtime for path in home.path.glob(f"{home.state_file.name}*")]
    return max(times, default=None)


def _settings_of(home: Home) -> dict[str, str]:
    """Return the settings that distinguish profiles, or the error of a broken file."""
    try:
        found = read_configuration(home).settings
    except HermesError as error:
        return {"settings": error.line()}
    return {setting.key: str(setting.shown(found.get(setting))) for setting in (BASE_URL, MODEL, PROVIDER)}


def _look(home: Home) -> ProfileContents:
    held = ProfileContents(home.name, str(home.path), _last_used(home), bytes=_size(home))
    if not home.state_file.exists():
        return held
    try:
        with open_unchanged(home.state_file, lock_timeout=PROFILE_LOCK_TIMEOUT_SECONDS) as tx:
            lend_tables(tx)
            sessions, messages = (
                int(tx.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in ("sessions", "messages")
            )
            runs = running_gateway(tx, now=SystemClock().now()) is not None
    except HermesError as error:
        return replace(held, problem=error.line())
    return replace(held, sessions=sessions, messages=messages, gateway_runs=runs)


def _size(home: Home) -> int:
    """Return the size of the home's files in bytes, without the profiles below the default home."""
    others = home.path / PROFILES
    files = (path for path in home.path.rglob("*") if not path.is_dir() and others not in path.parents)
    return sum(path.lstat().st_size for path in files)


def _describe(held: ProfileContents) -> str:
    size = f"{held.bytes / 1_000_000:,.1f} MB"
    if held.problem:
        return f"a store that cannot be read ({held.problem}), {size}"
    sessions = "1 session" if held.sessions == 1 else f"{held.sessions:,} sessions"
    return f"{sessions}, {held.messages:,} {'message' if held.messages == 1 else 'messages'}, {size}"


def _delete(folder: Path) -> None:
    """Rename the folder, then delete it, so that a half-deleted profile is never visible. Of a symlink only the link is
    removed."""
    try:
        if folder.is_symlink():
            folder.unlink()
            return
        aside = folder.with_name(f".deleted-{folder.name}-{secrets.token_hex(4)}")
        folder.rename(aside)
    except OSError as error:
        raise HomeError(f"cannot delete {folder}: {error.strerror}") from error
    try:
        shutil.rmtree(aside)
    except OSError as error:
        note(f"hermes: the profile is gone, but {aside} could not be emptied: {error.strerror}")
