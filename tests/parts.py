"""Real parts that a test needs beside the environment: fetched once for all workers, never missing silently in CI."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest
from filelock import FileLock

from scripts import test_parts


def need_commands(commands: tuple[str, ...], packages: tuple[str, ...]) -> None:
    """Go on with `commands` on the machine, from Debian's `packages` where they are not."""
    if problem := test_parts.install(commands, packages):
        missing(problem)


def fetch_once(cache: pytest.Cache, name: str, install: list[str], to: str) -> Path:
    """The folder `name` of the cache that the command `install`, with its option `to`, has filled once for all runs."""
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
    """A part cannot be had: a failure in CI, a skip with its reason elsewhere."""
    if os.environ.get("CI"):
        pytest.fail(f"missing in CI: {what}")
    pytest.skip(f"missing: {what}")
