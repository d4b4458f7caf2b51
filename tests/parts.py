"""Real parts that a test needs beside the environment: fetched once for all workers, never missing silently in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest
from filelock import FileLock


def need_commands(commands: tuple[str, ...], packages: tuple[str, ...]) -> None:
    """Go on with `commands` on the machine, from Debian's `packages` where they are not."""
    if all(map(shutil.which, commands)):
        return
    by_hand = f"apt-get install {' '.join(packages)}"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        missing(f"{', '.join(commands)}: `{by_hand}` as root installs what is needed")
    with FileLock(Path(tempfile.gettempdir()) / "hermes-tests-apt.lock"):
        if not all(map(shutil.which, commands)):
            for step in (
                ["apt-get", "update", "-qq"],
                ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
            ):
                subprocess.run(step, check=False, capture_output=True)
    if not all(map(shutil.which, commands)):
        missing(f"{', '.join(commands)}: `{by_hand}` did not bring it")


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
