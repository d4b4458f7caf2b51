"""Real parts that a test needs beside the environment: installed when we are root, never missing silently in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import NoReturn

import pytest


def need_commands(commands: tuple[str, ...], packages: tuple[str, ...]) -> None:
    """Go on with `commands` on the machine, from Debian's `packages` where they are not."""
    if all(map(shutil.which, commands)):
        return
    by_hand = f"apt-get install {' '.join(packages)}"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        missing(f"{', '.join(commands)}: `{by_hand}` as root installs what is needed")
    for step in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        subprocess.run(step, check=False, capture_output=True)
    if not all(map(shutil.which, commands)):
        missing(f"{', '.join(commands)}: `{by_hand}` did not bring it")


def missing(what: str) -> NoReturn:
    """A part cannot be had: a failure in CI, a skip with its reason elsewhere."""
    if os.environ.get("CI"):
        pytest.fail(f"missing in CI: {what}")
    pytest.skip(f"missing: {what}")
