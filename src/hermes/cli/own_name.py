"""The name under which the user can run this program: `hermes` if that is ours on PATH, else `hermes-host`, else as
they typed it, such as `.venv/bin/hermes`. Advice names commands this way, with the profile in use."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

NAME = "hermes"
NAMES = (NAME, "hermes-host")
"""The second name is for machines where another program is called `hermes`."""
QUOTED = f"`{NAME} "
PROFILE_COMMAND = re.compile(rf"{QUOTED}(?!-p |profiles\b)")
"""Matches a quoted command that acts on the profile in use: without -p, and not `profiles`."""


class TypedLine:
    """The command line that this process runs."""

    profile: str | None = None
    """The profile given with -p."""


TYPED = TypedLine()


def advise(text: str) -> str:
    """Return `text` with its backquoted commands as the user can type them, including their profile."""
    if QUOTED not in text:
        return text
    profile = TYPED.profile
    of_profile = text if profile is None else PROFILE_COMMAND.sub(f"{QUOTED}-p {shlex.quote(profile)} ", text)
    return of_profile.replace(QUOTED, f"`{own_name()} ")


@cache
def own_name() -> str:
    """Return the name for `hermes` on the user's command line."""
    return find_own_name(sys.argv[0], os.environ.get("PATH", ""), Path.cwd())


def read_command_line(arguments: Sequence[str]) -> tuple[str | None, str | None, str | None]:
    """Return the profile, the command, and the word after the command."""
    profile, words = None, iter(arguments)
    for word in words:
        if word in ("-p", "--profile"):
            profile = next(words, None)
        elif word.startswith("--profile="):
            profile = word.partition("=")[2]
        elif not word.startswith("-"):
            return profile, word, next(words, None)
    return profile, None, None


def find_own_name(started: str, path: str, here: Path) -> str:
    """Return the shortest name that runs the program started as `started`. For `python -m hermes`, the plain name."""
    program = here / started
    if program.name not in NAMES or not program.exists():
        return NAME
    real = program.resolve()
    for name in sorted(NAMES, key=lambda name: name != program.name):  # what was typed comes first
        found = shutil.which(name, path=path)
        if found is not None and Path(found).resolve() == real.with_name(name):
            return name
    if program.parent == here:
        return f"./{program.name}"
    return str(program.relative_to(here) if program.is_relative_to(here) else program)
