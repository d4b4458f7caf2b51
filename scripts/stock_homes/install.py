"""Installs a stock Hermes in a separate environment."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

VERSION = "0.19.0"
PACKAGES = (f"hermes-agent=={VERSION}", "aiohttp==3.14.1")
"""The package, and the requirements of its HTTP API."""


def install(folder: Path) -> Path:
    """Return the environment's Python; the first call installs it."""
    python = folder / "bin" / "python"
    done = folder / f".installed-{VERSION}"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        done.touch()
    return python
