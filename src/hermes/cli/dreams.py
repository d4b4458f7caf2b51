"""`hermes memory dreams`: list what dreams added and retired, and undo one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hermes.cli.memory import Data
from hermes.cli.memory_server import place_of
from hermes.cli.output import note, print_json, printable, say
from hermes.cli.start import AsJson
from hermes.clock import SystemClock
from hermes.embedded.place import Place
from hermes.errors import UsageError

LISTED_COUNT = 20


def dreams(
    ctx: typer.Context,
    undo: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Undo this dream: restore what it retired and remove what it added."),
    ] = None,
    data: Data = None,
    json: AsJson = False,
) -> None:
    """List the newest dreams of the memory server that changed something: the conclusions each added and those it
    retired. `hermes config set memory.dreams false` turns dreams off."""
    from hermes.memory_server.db.schema import FILE  # imported late: only this command needs the server's database

    place = place_of(ctx, data)
    found = asyncio.run(_read(place, undo)) if (place.folder / FILE).exists() else []
    if json:
        print_json(found)
        return
    for one in found:
        state = ", undone" if one["undone_at"] else ""
        say(printable(f"{one['id']}  {one['created_at'][:16].replace('T', ' ')}, workspace {one['workspace']}{state}"))
        for line in [f"drew: {text}" for text in one["added"]] + [f"retired: {text}" for text in one["retired"]]:
            say(printable(f"  {line}"))
    if not found:
        note("No dream has changed anything.")


async def _read(place: Place, undo: str | None) -> list[Mapping[str, Any]]:
    from hermes.memory_server import times
    from hermes.memory_server.db.schema import open_database
    from hermes.memory_server.engine.dreams import read_effects, undo_dream
    from hermes.memory_server.faults import Missing

    database = open_database(place.folder)
    try:
        if undo is not None:
            at = times.now(SystemClock())
            await database.write(lambda tx: undo_dream(tx, None, undo, at))
        return await database.read(lambda tx: read_effects(tx, LISTED_COUNT))
    except Missing as error:
        raise UsageError(f"there is no dream '{undo}'", hint="`hermes memory dreams` shows their ids") from error
    finally:
        await database.close()
