"""`hermes profiles`: which homes there are beside the default one, made and deleted on purpose."""

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
from hermes.cli.output import note, print_json, printable, say, show_time
from hermes.cli.start import AsJson
from hermes.cli.table import print_table
from hermes.clock import SystemClock
from hermes.configuration import read_configuration
from hermes.errors import HermesError, HomeError, UsageError
from hermes.home import PROFILES, Home
from hermes.settings import BASE_URL, MODEL, PROVIDER
from hermes.store.inbox import running_gateway
from hermes.store.reading import lend_tables, open_unchanged

app = typer.Typer(help="List, make, show and delete profiles: homes of their own.", rich_markup_mode=None)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The profile; `default` is the home beside them.")]
LOCK_TIMEOUT = 5.0


class ProfileHeld(Struct, frozen=True):
    """What a profile's home holds. A store that cannot be read has a `problem` and no counts."""

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
    """List, make, show and delete profiles: homes of their own."""
    if ctx.invoked_subcommand is None:
        list_profiles(json)


@app.command("list")
def list_profiles(json: AsJson = False) -> None:
    """The profiles of this installation; `*` marks the one that is used without -p."""
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
    """Make a profile: a home with settings, sessions, notes and plugins of its own."""
    home = Home.find(os.environ, name)
    if home.path.exists():
        raise UsageError(f"the profile '{name}' is there already", hint=f"`hermes profiles show {name}` shows it")
    home.ensure()
    say(f"Made {home.path}. `hermes -p {name} chat` talks there; its settings are the defaults, and")
    say(f"`hermes -p {name} config set NAME VALUE` changes them. The memory server is shared by all profiles.")


@app.command("show")
def show_profile(name: NameArgument, json: AsJson = False) -> None:
    """What a profile holds: its settings for model and memory, its sessions, its size on the disk."""
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
    """Delete a profile with all that is in its home. Says first what will go and what stays."""
    home = Home.find_existing(os.environ, name)
    if home.profile is None:
        raise UsageError("the default home is no profile, and is not deleted here", hint=f"It is {home.path}")
    if home.path == Home.find(os.environ).path:
        raise UsageError(f"HERMES_HOME names the profile '{name}'", hint="Unset it, so that another home is used")
    held = _look(home)
    if held.gateway_runs:
        raise UsageError(f"a gateway runs in '{name}'", hint=f"`hermes -p {name} gateway stop` ends it")
    say(f"This deletes {held.path}: its notes, settings, keys, plugins and logs, and {_describe(held)}.")
    say(f"What memory was told stays there; `hermes -p {name} memory forget WORDS` has it forgotten before.")
    agree(f"Delete the profile '{name}' for good?", "deleting", "deleted", yes)
    _delete(home.path)
    say("Deleted.")


def _last_used(home: Home) -> float | None:
    """When its store was last written; None for a home where nobody has talked."""
    times = [path.stat().st_mtime for path in home.path.glob(f"{home.state_file.name}*")]
    return max(times, default=None)


def _settings_of(home: Home) -> dict[str, str]:
    """The settings that tell profiles apart; a broken file is said in their place."""
    try:
        found = read_configuration(home).settings
    except HermesError as error:
        return {"settings": error.line()}
    return {setting.key: str(setting.shown(found.get(setting))) for setting in (BASE_URL, MODEL, PROVIDER)}


def _look(home: Home) -> ProfileHeld:
    held = ProfileHeld(home.name, str(home.path), _last_used(home), bytes=_size(home))
    if not home.state_file.exists():
        return held
    try:
        with open_unchanged(home.state_file, lock_timeout=LOCK_TIMEOUT) as tx:
            lend_tables(tx)
            sessions, messages = (
                int(tx.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in ("sessions", "messages")
            )
            runs = running_gateway(tx, now=SystemClock().now()) is not None
    except HermesError as error:
        return replace(held, problem=error.line())
    return replace(held, sessions=sessions, messages=messages, gateway_runs=runs)


def _size(home: Home) -> int:
    """Bytes of its files; the profiles below the default home are homes of their own."""
    others = home.path / PROFILES
    files = (path for path in home.path.rglob("*") if not path.is_dir() and others not in path.parents)
    return sum(path.lstat().st_size for path in files)


def _describe(held: ProfileHeld) -> str:
    size = f"{held.bytes / 1_000_000:,.1f} MB"
    if held.problem:
        return f"a store that cannot be read ({held.problem}), {size}"
    sessions = "1 session" if held.sessions == 1 else f"{held.sessions:,} sessions"
    return f"{sessions}, {held.messages:,} {'message' if held.messages == 1 else 'messages'}, {size}"


def _delete(folder: Path) -> None:
    """Take the folder away in one step and then empty it, so that no half of a profile is ever found. Of a link the
    link alone goes."""
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
