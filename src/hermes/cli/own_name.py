"""How the person can type our name: `hermes` where that is ours on PATH, else `hermes-host` where that is, else as they
did, such as `.venv/bin/hermes`; and with the profile that they named."""

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
"""The second one is for machines on which another program has the first."""
QUOTED = f"`{NAME} "
OF_A_PROFILE = re.compile(rf"{QUOTED}(?!-p |profiles\b)")
"""A command that acts on the profile in use: it names no other, and is not about profiles."""


class TypedLine:
    """The command line that this process runs."""

    profile: str | None = None
    """The profile that it names."""


TYPED = TypedLine()


def advise(text: str) -> str:
    """`text` with the commands it names in backquotes as the person can type them, for the profile that they named."""
    if QUOTED not in text:
        return text
    profile = TYPED.profile
    of_profile = text if profile is None else OF_A_PROFILE.sub(f"{QUOTED}-p {shlex.quote(profile)} ", text)
    return of_profile.replace(QUOTED, f"`{own_name()} ")


@cache
def own_name() -> str:
    """What stands for `hermes` on the person's command line."""
    return find_own_name(sys.argv[0], os.environ.get("PATH", ""), Path.cwd())


def read_command_line(arguments: Sequence[str]) -> tuple[str | None, str | None, str | None]:
    """The profile and the command that a command line names, and the word behind that."""
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
    """Return the shortest name that leads to the program that was started as `started`. A module (`python -m
    hermes`) is called by its name alone."""
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
