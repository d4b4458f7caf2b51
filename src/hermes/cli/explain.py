"""`hermes memory explain`: what memory added to a turn, with its source, age, cuts and what came too late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from msgspec import to_builtins

from hermes.cli.output import print_json, printable, say, show_time
from hermes.cli.start import AsJson, load_app, read_store
from hermes.cli.table import print_table
from hermes.db.engine import Tx
from hermes.store.injections import InjectedPart, Injection, find_injection, lines_of
from hermes.store.store import Store


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
