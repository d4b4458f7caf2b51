"""`hermes memory status`: the chosen provider, whether it works, and what it has not received yet."""

from __future__ import annotations

import logging

import typer

from hermes.cli.memory_server import server_lines
from hermes.cli.output import print_json, printable, say, show_time
from hermes.cli.start import AsJson, load_app, with_store
from hermes.owner.server import read_server
from hermes.owner.status import read_status
from hermes.redaction import hide_passwords
from hermes.types import Json


def status(ctx: typer.Context, json: AsJson = False) -> int:
    """Show whether the memory provider and the memory server work, and what is still queued. Nothing is delivered or
    started."""
    found = load_app(ctx)
    logging.getLogger("hermes.memory").addHandler(logging.NullHandler())  # its warnings are part of the output below
    shown = with_store(found, lambda store: read_status(found, store))
    shown["server"] = server = read_server(found.home)
    if json:
        print_json(shown)
    else:
        _print(shown)
        for line in server_lines(server):
            say(hide_passwords(printable(line)))
    fails = shown["outbox"] is not None and shown["outbox"]["failing_since"] is not None
    return 0 if shown["problem"] is None and server["problem"] is None and not fails else 1


def _print(shown: dict[str, Json]) -> None:
    say(f"provider  {shown['provider']}{'' if shown['problem'] is None else ' (failing)'}")
    if shown["problem"]:
        say(f"problem   {hide_passwords(printable(shown['problem']))}")
    for label, value in shown["plugin"].items():
        say(hide_passwords(printable(f"{label:<9} {value}")))
    for line in shown["remarks"]:
        say(f"note      {hide_passwords(printable(line))}")
    if shown["tools"]:
        say(f"tools     {printable(shown['tools'])}")
    if shown["outbox"] is not None:
        say(f"outbox    {_line(shown['outbox'])}")
    for name, outbox in shown["others"].items():
        if outbox["waiting"] or outbox["put_aside"]:
            say(f"outbox of {name}, which is not chosen: {_line(outbox)}")


def _line(outbox: dict[str, Json]) -> str:
    parts = [f"{outbox['waiting']} waiting", f"{outbox['put_aside']} put aside"]
    if outbox["waiting"]:
        parts.append(f"the oldest for {outbox['oldest_seconds']:.0f} s")
    if outbox["last_success"] is not None:
        parts.append(f"last delivered {show_time(outbox['last_success'])}")
    if outbox["failing_since"] is not None:
        parts.append(f"failing since {show_time(outbox['failing_since'])}: {printable(outbox['last_error'] or '')}")
    return ", ".join(parts)
