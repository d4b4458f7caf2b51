"""`hermes trust`, and the question about an AGENTS.md that is not trusted yet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from hermes.cli.dialog import TerminalDialog
from hermes.cli.output import note, print_json, printable, say
from hermes.cli.project_file import NAME, ProjectFile, State, TrustAnswer, TrustedFiles, find_project_file
from hermes.cli.start import AsJson, find_home
from hermes.errors import NotFoundError

NONE_TRUSTED = "no directory is trusted yet"
OPTIONS = {
    "no": "continue without it",
    "yes": "trust it as it is now; you will be asked again when it changes",
    "never": "do not ask about it again until it changes",
    "show": "show it first",
}


def trust(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(help="The directory; default: the current one.")] = Path(),
    remove: Annotated[bool, typer.Option("--remove", help="Stop trusting it.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the trusted directories.")] = False,
    json: AsJson = False,
) -> None:
    """Let the agent follow a directory's AGENTS.md, as it is now, in terminal sessions that begin there."""
    home = find_home(ctx)
    trusted = TrustedFiles(home)
    if listed:
        known = trusted.listed()
        if json:
            print_json(known)
            return
        for name in known:
            say(printable(name))
        if not known:
            note(NONE_TRUSTED)
        return
    if remove:
        was = trusted.drop(directory)
        note(f"{NAME} of {printable(str(directory.resolve()))} {'is no longer used' if was else 'was not trusted'}.")
        return
    file = find_project_file(directory)
    if file is None:
        raise NotFoundError(f"there is no {NAME} with text in {directory.resolve()}", hint="")
    home.ensure()
    trusted.keep(file, is_wanted=True)
    note(f"Trusted: {printable(str(file.path))}, {len(file.text):,} characters.")


def wants(file: ProjectFile, state: State) -> TrustAnswer:
    """Ask the user whether the agent may follow a file. They may view it first."""
    why = "has changed since you trusted it" if state == "changed" else "is new"
    dialog, lines = TerminalDialog(), len(file.text.splitlines())
    size = "1 line" if lines == 1 else f"{lines} lines"
    asked = f"{file.path}, {size}, {why}. Shall the agent follow it in sessions that begin here?"
    while (answer := dialog.choose(printable(asked), OPTIONS, "no")) == "show":
        say(printable(file.text))
    return cast(TrustAnswer, answer)
