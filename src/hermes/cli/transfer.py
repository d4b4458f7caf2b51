"""`hermes memory export` and `import`: copy a workspace between a file and any Honcho server."""

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
ITEMS_PER_REPORT = 1000
"""Items between two progress lines."""


def export(
    ctx: typer.Context,
    workspace: Annotated[str, typer.Argument(help="The workspace.")],
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    from_: Annotated[
        str | None, typer.Option("--from", help=f"The server (default: {URL}, or the memory server of this home).")
    ] = None,
    json: AsJson = False,
) -> int:
    """Export a workspace of a Honcho server to a file. An interrupted export resumes. HONCHO_API_KEY is the key."""
    # imported late: only these two commands need a client
    from hermes.transfer.export import export_workspace
    from hermes.transfer.own_server import OwnSource
    from hermes.transfer.public_source import PublicSource
    from hermes.transfer.remote import Remote

    url, key, _ = server_of(ctx, from_)
    remote = Remote(url, key, workspace)
    try:
        own = "export" in remote.extensions()
        source = OwnSource(remote) if own else PublicSource(remote)
        report = export_workspace(source, workspace, file, _progress_printer("exported"))
    finally:
        remote.close()
    if json:
        print_json(report)
    else:
        say(f"{workspace}: {_sum(report['counts'])} in {printable(str(file))}")
        _print_counts("not provided by the server", report["lacking"])
    return 0


def import_(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A file that `hermes memory export` wrote.")],
    to: Annotated[
        str | None, typer.Option("--to", help=f"The server (default: {URL}, or the memory server of this home).")
    ] = None,
    json: AsJson = False,
) -> int:
    """Import a workspace from a file into a Honcho server. An interrupted import resumes. HONCHO_API_KEY is the key.

    Exits with 1 if the server refused something."""
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
        report = import_file(target, checked, file, progress, _progress_printer("imported"))
    finally:
        remote.close()
    if json:
        print_json(report)
    else:
        _print_import(report)
    return 1 if report["refused"] else 0


def server_of(ctx: typer.Context, given: str | None) -> tuple[str, str | None, str]:
    """Return the server's URL, key and stable name. This home's server is started if needed; its port changes, so its
    name is its folder."""
    home = find_home(ctx)
    env = load_shared_env(home)
    if url := given or env.get(URL):
        return url, env.get(KEY), url.rstrip("/")
    place = find_place(home, env)
    found = connect(place, say=note)
    return found.base_url, found.api_key, str(place.folder)


def _progress_printer(done: str) -> Callable[[str, int], None]:
    """Return a callback that prints progress, every `ITEMS_PER_REPORT` items."""
    printed: dict[str, int] = {}

    def report(section: str, count: int) -> None:
        if count >= printed.get(section, 0) + ITEMS_PER_REPORT:
            printed[section] = count
            note(f"{count} {section} {done}")

    return report


def _print_import(report: Mapping[str, Any]) -> None:
    say(f"{report['workspace']}: {_sum(report['carried'])} imported into {report['to']}")
    if any(report["present"].values()):
        say(f"already there: {_sum(report['present'])}")
    _print_counts("not in the file", report["not_in_file"])
    _print_counts("could not be imported", report["not_carried"])
    for refused in report["refusals"]:
        say(f"refused: line {refused['line']}: {printable(refused['reason'])}")
    if report["refused"] > len(report["refusals"]):
        say(f"refused in total: {report['refused']}")


def _print_counts(title: str, counts: Mapping[str, int]) -> None:
    for what, number in counts.items():
        say(f"{title}: {what} ({number})")


def _sum(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {section}" for section, number in counts.items() if number) or "nothing"
