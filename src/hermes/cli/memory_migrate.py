"""`hermes memory migrate`: move a memory between a folder and a PostgreSQL database."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import to_builtins

from hermes.cli.output import note, print_json, printable, say
from hermes.cli.start import AsJson, find_home
from hermes.config_file import load_shared_env
from hermes.errors import UsageError

if TYPE_CHECKING:
    from hermes.memory_server.db.move_places import MovePlace
    from hermes.memory_server.db.moving import MoveReport

VARIABLE = "HERMES_MEMORY_DATABASE"
REPORT_SECONDS = 2.0
PLACE_HELP = f"A folder, postgresql://…, or {VARIABLE} for the URL in that variable."


def migrate(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FROM", help=PLACE_HELP)],
    target: Annotated[
        str, typer.Argument(metavar="TO", help=f"Where nothing is yet: {PLACE_HELP[0].lower()}{PLACE_HELP[1:]}")
    ],
    undo: Annotated[
        bool,
        typer.Option("--undo", help="Let FROM take writes again, and remove from TO the rows of an unfinished move."),
    ] = False,
    json: AsJson = False,
) -> int:
    """Move a whole memory from a folder to a PostgreSQL database, or back. An interrupted move resumes.

    FROM stays readable during and after the move but refuses writes. Every row is compared at the end."""
    from hermes.memory_server.db import moving  # imported late: only this command needs it

    env = load_shared_env(find_home(ctx))
    ends = _find_place(source, "FROM", env), _find_place(target, "TO", env)
    try:
        report = moving.undo(*ends) if undo else moving.move(*ends, _Progress())
    except KeyboardInterrupt:
        note("interrupted: the same command resumes the move; with --undo, FROM takes writes again")
        raise
    finally:
        for end in ends:
            end.close()
    steps = _next_steps(report, target)
    if json:
        print_json({**to_builtins(report), "next": steps})
        return 0
    say(_sum(report))
    for step in steps:
        say(f"next: {printable(step)}")
    return 0


class _Progress:
    """Prints the progress of a move every few seconds."""

    def __init__(self) -> None:
        self._printed_at = time.monotonic()

    def __call__(self, step: str, table: str, done: int, total: int) -> None:
        if time.monotonic() - self._printed_at >= REPORT_SECONDS:
            self._printed_at = time.monotonic()
            note(f"{step} {done:,} of {total:,} rows of {table}")


def _find_place(given: str, name: str, env: Mapping[str, str]) -> MovePlace:
    from hermes.memory_server.db.address import DatabaseAddress, parse_shown
    from hermes.memory_server.db.move_places import FolderPlace, PostgresPlace
    from hermes.memory_server.db.schema import INSTALL_POSTGRES

    if given != VARIABLE and "://" not in given:
        return FolderPlace(Path(given).expanduser())
    if given == VARIABLE and not env.get(VARIABLE, "").strip():
        raise UsageError(f"{name} is {VARIABLE}, which is empty", hint="Set it to the URL of a database")
    address = DatabaseAddress.parse(env[VARIABLE], VARIABLE) if given == VARIABLE else parse_shown(given, name)
    try:
        return PostgresPlace(address)
    except ImportError as error:
        raise UsageError(f"PostgreSQL needs the package psycopg ({error})", hint=INSTALL_POSTGRES) from error


def _sum(report: MoveReport) -> str:
    if report.state == "none":
        return f"{report.source} is not being moved: nothing to undo"
    if report.state == "undone":
        return f"{report.source} takes writes again"
    moved = f"{report.source} was moved to {report.target}"
    if not report.is_new:
        return f"{moved} before"
    rows = f"{report.rows['messages']:,} messages, {report.rows['conclusions']:,} conclusions"
    return f"{moved}: {rows}, {sum(report.rows.values()):,} rows in all, each compared"


def _next_steps(report: MoveReport, target: str) -> list[str]:
    """Return the steps that put the new place into use."""
    if report.state == "undone":
        return [f"serve one of the two alone: what {report.target} was given whole stays there, and takes writes"]
    if report.state != "moved":
        return []
    if target != VARIABLE and "://" not in target:
        folder = Path(target).expanduser().absolute()
        steps = [f"serve it: `hermes memory serve --data {folder}`, or set HERMES_MEMORY_DATA={folder} for homes"]
    else:
        how = "" if target == VARIABLE else f" --database {target}"
        also = f" (with {VARIABLE} set)" if target == VARIABLE else ""
        serve, work = "hermes memory serve" + how, "hermes memory worker" + how
        steps = [f"serve it: `{serve}`{also}, and `{work}` as often as you like"]
        steps.append("give clients the URL of that server: baseUrl in honcho.json, or HONCHO_BASE_URL")
    return [
        *steps,
        f"keep {report.source} until all is well: it refuses writes, and clients keep what they have queued",
    ]
