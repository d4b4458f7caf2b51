"""`hermes memory approve` and `hermes memory clients`: which programs may sign in to a memory server.

Both open the memory folder or database directly, whether or not its server runs: read access to it proves ownership.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hermes.cli.memory import Data, DatabaseUrl, find_database, place_of
from hermes.cli.output import note, print_json, print_table, printable, say, show_time
from hermes.cli.start import AsJson, find_home
from hermes.clock import SystemClock
from hermes.config_file import load_shared_env
from hermes.errors import UsageError

if TYPE_CHECKING:  # the server is loaded by the command that needs it: its database takes half a second
    from hermes.memory_server.db.database import Record, Tx

T = TypeVar("T")
NO_REQUEST = "no request to sign in waits"
MICROS_PER_SECOND = 1_000_000
app = typer.Typer(help="Programs that may sign in to the memory server.", no_args_is_help=True, rich_markup_mode=None)


def approve(
    ctx: typer.Context,
    request: Annotated[str, typer.Argument(help="The request's four letters; needed if several wait.")] = "",
    data: Data = None,
    database: DatabaseUrl = None,
    json: AsJson = False,
) -> None:
    """Print the one-time code that approves a sign-in request. Enter it on the page that shows the request."""
    from hermes.memory_server.engine import sign_ins

    found, code = _run(ctx, (data, database), lambda tx, at: _approve(tx, request, at))
    shown = {"request": sign_ins.label_of(found), "client": found.client, "address": found.address, "code": code}
    if json:
        print_json({**shown, "expires_at": found.expires_at / MICROS_PER_SECOND})
        return
    where = "a device" if found.device_hash else "a browser"
    note(
        f"{printable(found.client)} asks to sign in through {where} at {printable(found.address)}, request "
        f"{shown['request']}, until {show_time(found.expires_at / MICROS_PER_SECOND)}. "
        "If you did not start this, do not use the code."
    )
    say(code)


@app.command()
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The program's client_id.")],
    redirect: Annotated[
        list[str] | None,
        typer.Option("--redirect", help="A URL that its browser may be sent back to; default: /callback on loopback."),
    ] = None,
    data: Data = None,
    database: DatabaseUrl = None,
) -> None:
    """Register another program that may ask to sign in."""
    from hermes.memory_server.engine import grants

    _run(ctx, (data, database), lambda tx, at: grants.add_client(tx, name, redirect or [], at))
    say(f"{name} may ask to sign in")


@app.command("list")
def list_(ctx: typer.Context, data: Data = None, database: DatabaseUrl = None, json: AsJson = False) -> None:
    """List the programs that may ask to sign in."""
    from hermes.memory_server.engine import grants

    clients = _run(ctx, (data, database), lambda tx, _: grants.list_clients(tx))
    if json:
        print_json([client._asdict() for client in clients])
        return
    rows = [(one.name, "built in" if one.is_built_in else "added", ", ".join(one.redirects)) for one in clients]
    print_table(("client", "", "goes back to (a loopback address on any port)"), rows)


@app.command()
def remove(ctx: typer.Context, name: str, data: Data = None, database: DatabaseUrl = None) -> None:
    """Remove a registered program and revoke its grants."""
    from hermes.memory_server.db.sign_in_tables import grants
    from hermes.memory_server.engine.grants import end_grants, remove_client

    def run(tx: Tx, _at: int) -> int:
        remove_client(tx, name)
        return end_grants(tx, grants.c.client == name)

    say(f"{name} is removed, {_count(_run(ctx, (data, database), run))}")


@app.command("grants")
def show_grants(ctx: typer.Context, data: Data = None, database: DatabaseUrl = None, json: AsJson = False) -> None:
    """List the programs that are signed in, and what each may open."""
    from hermes.memory_server.engine.grants import list_grants

    found = _run(ctx, (data, database), lambda tx, _: list_grants(tx))
    if json:
        print_json([_grant(row) for row in found])
        return
    if not found:
        note("no program is signed in")
        return
    rows = [
        (row.public_id, row.client, row.workspace, row.person, show_time(row.renewed_at / MICROS_PER_SECOND))
        for row in found
    ]
    print_table(("grant", "client", "workspace", "name", "last renewed"), rows)


@app.command()
def revoke(
    ctx: typer.Context,
    grant: Annotated[str, typer.Argument(help="The grant, as `hermes memory clients grants` shows it; or a client.")],
    data: Data = None,
    database: DatabaseUrl = None,
) -> None:
    """Sign a program out: its tokens stop working at once."""
    from hermes.memory_server.db.sign_in_tables import grants
    from hermes.memory_server.engine.grants import end_grants

    def run(tx: Tx, _at: int) -> int:
        return end_grants(tx, grants.c.public_id == grant) or end_grants(tx, grants.c.client == grant)

    if not (ended := _run(ctx, (data, database), run)):
        raise UsageError(f"no grant or client {grant!r} is signed in", hint="See `hermes memory clients grants`")
    say(_count(ended))


# The code goes through the database, not HTTP: no running server, no secret of it and no port is needed.
def _approve(tx: Tx, request: str, at: int) -> tuple[Record, str]:
    from hermes.memory_server.engine import sign_ins

    waiting = sign_ins.list_open(tx, at)
    wanted = [one for one in waiting if request.upper() in ("", sign_ins.label_of(one))]
    if not wanted:
        raise UsageError(
            f"no request {request} waits" if request else NO_REQUEST,
            hint="A program asks first; requests wait for ten minutes" + _listed(waiting),
        )
    if len(wanted) > 1:
        raise UsageError(f"{len(wanted)} requests wait", hint=f"Name the one that the page shows{_listed(wanted)}")
    return wanted[0], sign_ins.new_approval(tx, wanted[0])


def _listed(waiting: Sequence[Record]) -> str:
    from hermes.memory_server.engine import sign_ins

    labels = [f"{sign_ins.label_of(one)} ({one.client} at {printable(one.address)})" for one in waiting[:10]]
    return f": {', '.join(labels)}" if labels else ""


def _grant(row: Record) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in ("client", "workspace", "person", "source")}
    times_of = {name: getattr(row, name) / MICROS_PER_SECOND for name in ("created_at", "renewed_at")}
    return {"grant": row.public_id, **fields, **times_of}


def _count(ended: int) -> str:
    return f"{ended} {'grant' if ended == 1 else 'grants'} revoked"


def _run(ctx: typer.Context, chosen: tuple[Path | None, str | None], run: Callable[[Tx, int], T]) -> T:
    """Run a transaction on the memory that `--data` or `--database` names. Refusals become UsageError."""
    from hermes.memory_server import times
    from hermes.memory_server.db.schema import FILE, open_database, open_postgres
    from hermes.memory_server.faults import Fault

    address = find_database(chosen[1], chosen[0], load_shared_env(find_home(ctx)))
    folder = place_of(ctx, chosen[0]).folder
    if address is None and not (folder / FILE).exists():
        raise UsageError(f"there is no memory in {folder}", hint="Start its server first, or name the folder: --data")

    async def write() -> T:
        opened = open_database(folder) if address is None else open_postgres(address)
        try:
            return await opened.write(lambda tx: run(tx, times.now(SystemClock())))
        finally:
            await opened.close()

    try:
        return asyncio.run(write())
    except Fault as fault:
        raise UsageError(fault.reason) from fault
