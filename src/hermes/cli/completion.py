"""`hermes completion`: print a completion script for a shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

SHELLS = Path(__file__).with_name("shells")


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Which shell: bash, zsh or fish.")],
) -> None:
    """Print a shell script that completes commands, options, sessions, profiles and settings with Tab."""
    sys.stdout.write((SHELLS / f"hermes.{shell}").read_text(encoding="utf-8"))
