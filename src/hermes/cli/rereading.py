"""`hermes memory reread`: messages that an earlier version read are read again by this one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes.cli.dialog import agree
from hermes.cli.output import note, print_json, printable, say
from hermes.cli.start import AsJson
from hermes.cli.transfer import server_of
from hermes.errors import UsageError

if TYPE_CHECKING:
    from hermes.transfer.remote import Remote

EXTENSION = "reread"
POLL_SECONDS, REPORT_SECONDS = 0.5, 5.0


def reread(
    ctx: typer.Context,
    workspace: Annotated[str, typer.Argument(help="The workspace.")] = "hermes",
    yes: Annotated[bool, typer.Option("--yes", help="Read without asking.")] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Bring back what was retired and remove what was added.")
    ] = False,
    json: AsJson = False,
) -> int:
    """Read all messages of a workspace again, and conclude what earlier versions did not. What would be done is
    shown first. One that was cut off goes on by itself; --undo stops it."""
    from hermes.transfer.remote import Remote  # loads httpx

    url, key, _ = server_of(ctx, None)
    remote = Remote(url, key, workspace)
    try:
        if EXTENSION not in remote.extensions():
            raise UsageError(f"{url} cannot read messages again: it is not a memory server of this version")
        if undo:
            remote.ask("DELETE", "ext/reread")
            return _end(remote.ask("GET", "ext/reread"), "undone", json=json)
        _show(workspace, remote.ask("GET", "ext/reread"))
        agree("Read them again?", "reading again", "read again", yes)
        remote.ask("POST", "ext/reread")
        return _end(_wait(remote), "read", json=json)
    finally:
        remote.close()


def _show(workspace: str, found: dict[str, Any]) -> None:
    note(f"{workspace} has {found['messages']:,} messages.")
    note(f"Of the newest {found['looked_at']:,}, {found['would_add']:,} sentences would be concluded anew:")
    for line in found["examples"]:
        note(f"  {printable(line)}")
    if found["was_deleted"]:
        note("Something was deleted here. What an earlier version deleted may be concluded again from other messages.")


def _wait(remote: Remote) -> dict[str, Any]:
    """Wait until all is read, and say how far it is. The server goes on when this ends earlier."""
    told = time.monotonic()
    while (found := remote.ask("GET", "ext/reread"))["left"]:
        if time.monotonic() - told >= REPORT_SECONDS:
            told = time.monotonic()
            note(f"{found['left']:,} left, {found['added']:,} added")
        time.sleep(POLL_SECONDS)
    return dict(found)


def _end(found: dict[str, Any], done: str, *, json: bool) -> int:
    if json:
        print_json({"outcome": done, **found})
    else:
        say(f"{done}: {found['added']:,} conclusions added, {found['retired']:,} retired in all")
    return 0
