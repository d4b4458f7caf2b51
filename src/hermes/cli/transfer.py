"""`hermes memory export` and `import`: a workspace as a file, from and to any Honcho server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes.cli.output import note, print_json, printable, say
from hermes.cli.start import AsJson, find_home
from hermes.config_file import load_shared_env
from hermes.embedded.connect import connect
from hermes.embedded.place import find_place

URL, KEY = "HONCHO_URL", "HONCHO_API_KEY"
EVERY = 1000
"""How many items there are between two lines of progress."""


def export(
    ctx: typer.Context,
    workspace: Annotated[str, typer.Argument(help="The workspace.")],
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    from_: Annotated[
        str | None, typer.Option("--from", help=f"The server (default: {URL}, or the memory server of this home).")
    ] = None,
    json: AsJson = False,
) -> int:
    """Write a workspace of a Honcho server to a file. One that was cut off goes on. HONCHO_API_KEY is the key."""
    # Only these two commands need a client.
    from hermes.transfer.export import export_workspace
    from hermes.transfer.own_server import OwnSource
    from hermes.transfer.public_source import PublicSource
    from hermes.transfer.remote import Remote

    url, key, _ = server_of(ctx, from_)
    remote = Remote(url, key, workspace)
    try:
        own = "export" in remote.extensions()
        source = OwnSource(remote) if own else PublicSource(remote)
        report = export_workspace(source, workspace, file, _teller("exported"))
    finally:
        remote.close()
    if json:
        print_json(report)
    else:
        say(f"{workspace}: {_sum(report['counts'])} in {printable(str(file))}")
        _print_counts("not told by the server", report["lacking"])
    return 0


def import_(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A file that `hermes memory export` wrote.")],
    to: Annotated[
        str | None, typer.Option("--to", help=f"The server (default: {URL}, or the memory server of this home).")
    ] = None,
    json: AsJson = False,
) -> int:
    """Bring a workspace from a file to a Honcho server. One that was cut off goes on. HONCHO_API_KEY is the key.

    The code is 1 when the server refused something."""
    from hermes.transfer.importing import Progress, import_file
    from hermes.transfer.lines import check_file
    from hermes.transfer.own_server import OwnTarget
    from hermes.transfer.public_target import PublicTarget
    from hermes.transfer.remote import Remote

    checked = check_file(file)
    url, key, name = server_of(ctx, to)
    remote = Remote(url, key, checked.workspace)
    try:
        own = "import" in remote.extensions()
        path = file.with_name(file.name + ".progress")
        progress = Progress.take_up(path, checked.sha256, name, checked.workspace)
        target = OwnTarget(remote) if own else PublicTarget(remote)
        report = import_file(target, checked, file, progress, _teller("imported"))
    finally:
        remote.close()
    if json:
        print_json(report)
    else:
        _print_import(report)
    return 1 if report["refused"] else 0


def server_of(ctx: typer.Context, given: str | None) -> tuple[str, str | None, str]:
    """Return URL, key and lasting name of the server. That of this home is started when it does not run; its port
    changes with each start, so its name is its folder."""
    home = find_home(ctx)
    env = load_shared_env(home)
    if url := given or env.get(URL):
        return url, env.get(KEY), url.rstrip("/")
    place = find_place(home, env)
    found = connect(place, say=note)
    return found.base_url, found.api_key, str(place.folder)


def _teller(done: str) -> Callable[[str, int], None]:
    """Tells how far it is, not more often than is good."""
    told: dict[str, int] = {}

    def tell(section: str, count: int) -> None:
        if count >= told.get(section, 0) + EVERY:
            told[section] = count
            note(f"{count} {section} {done}")

    return tell


def _print_import(report: Mapping[str, Any]) -> None:
    say(f"{report['workspace']}: {_sum(report['carried'])} brought to {report['to']}")
    if any(report["present"].values()):
        say(f"there already: {_sum(report['present'])}")
    _print_counts("not in the file", report["not_in_file"])
    _print_counts("could not be carried", report["not_carried"])
    for refused in report["refusals"]:
        say(f"refused: line {refused['line']}: {printable(refused['reason'])}")
    if report["refused"] > len(report["refusals"]):
        say(f"refused in all: {report['refused']}")


def _print_counts(title: str, counts: Mapping[str, int]) -> None:
    for what, number in counts.items():
        say(f"{title}: {what} ({number})")


def _sum(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {section}" for section, number in counts.items() if number) or "nothing"
