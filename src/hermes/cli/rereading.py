"""`hermes memory reread`: run this version's analysis over messages that an earlier version processed."""

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
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Restore retired conclusions and remove added ones.")] = False,
    json: AsJson = False,
) -> int:
    """Process all messages of a workspace again and add conclusions that earlier versions missed. Shows first what
    would change. An interrupted run resumes by itself; --undo stops it."""
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
    note(f"Of the newest {found['looked_at']:,}, {found['would_add']:,} sentences would become new conclusions:")
    for line in found["examples"]:
        note(f"  {printable(line)}")
    if found["was_deleted"]:
        note("Conclusions were deleted here. They may be added again from other messages.")


def _wait(remote: Remote) -> dict[str, Any]:
    """Wait until all messages are processed, and print progress. The server continues if this process ends."""
    printed_at = time.monotonic()
    while (found := remote.ask("GET", "ext/reread"))["left"]:
        if time.monotonic() - printed_at >= REPORT_SECONDS:
            printed_at = time.monotonic()
            note(f"{found['left']:,} left, {found['added']:,} added")
        time.sleep(POLL_SECONDS)
    return dict(found)


def _end(found: dict[str, Any], done: str, *, json: bool) -> int:
    if json:
        print_json({"outcome": done, **found})
    else:
        say(f"{done}: {found['added']:,} conclusions added, {found['retired']:,} retired in all")
    return 0
