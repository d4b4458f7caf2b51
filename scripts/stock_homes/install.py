"""A stock Hermes in an environment of its own."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

VERSION = "0.19.0"
PACKAGES = (f"hermes-agent=={VERSION}", "aiohttp==3.14.1")
"""Itself, and what its HTTP API needs."""


def install(folder: Path) -> Path:
    """The environment's Python; installed on the first call."""
    python = folder / "bin" / "python"
    done = folder / f".installed-{VERSION}"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        done.touch()
    return python
