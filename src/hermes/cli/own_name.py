"""How the person can type our name: `hermes` where it is on PATH, else as they did, such as `.venv/bin/hermes`."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from pathlib import Path

NAME = "hermes"
QUOTED = f"`{NAME} "


def advise(text: str) -> str:
    """`text` with the commands it names in backquotes as the person can type them."""
    return text.replace(QUOTED, f"`{own_name()} ") if QUOTED in text else text


@cache
def own_name() -> str:
    """What stands for `hermes` on the person's command line."""
    return find_own_name(sys.argv[0], os.environ.get("PATH", ""), Path.cwd())


def find_own_name(started: str, path: str, here: Path) -> str:
    """The shortest that leads to the program that was started as `started`. A module (`python -m hermes`) is called by
    its name alone."""
    program = here / started
    if program.name != NAME or not program.exists():
        return NAME
    found = shutil.which(NAME, path=path)
    if found is not None and Path(found).samefile(program):
        return NAME
    if program.parent == here:
        return f"./{NAME}"
    return str(program.relative_to(here) if program.is_relative_to(here) else program)
