"""Real programs that a test needs beside Python: installed once for all workers; in CI a missing one is a failure."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest
from filelock import FileLock

from scripts import test_parts


def need_commands(commands: tuple[str, ...], packages: tuple[str, ...]) -> None:
    """Install `commands` from Debian's `packages` if the machine lacks them."""
    if problem := test_parts.install(commands, packages):
        missing(problem)


def fetch_once(cache: pytest.Cache, name: str, install: list[str], to: str) -> Path:
    """Return the cache folder `name`, which the command `install`, with its option `to`, fills once for all runs."""
    folder = cache.mkdir(name)
    done = folder / ".complete"
    with FileLock(folder.with_suffix(".lock")):
        if not done.exists():
            fetched = subprocess.run([*install, to, str(folder)], check=False, capture_output=True, text=True)
            if fetched.returncode:
                missing(f"{name} cannot be fetched here: {fetched.stderr.strip()[-200:]}")
            done.touch()
    return folder


def missing(what: str) -> NoReturn:
    """Report a missing program: a failure in CI, otherwise a skip with its reason."""
    if os.environ.get("CI"):
        pytest.fail(f"missing in CI: {what}")
    pytest.skip(f"missing: {what}")
