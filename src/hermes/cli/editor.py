"""A text in the person's own editor."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hermes.errors import UsageError

VARIABLES, FALLBACKS = ("VISUAL", "EDITOR"), ("nano", "vi")
LARGEST = 1_000_000
"""Bytes of a text that are read back."""


async def edit_text(text: str, env: Mapping[str, str] = os.environ) -> str | None:
    """The text as it is when the editor ends; None when that gave up. It has the terminal meanwhile.

    Raises UsageError when there is no editor, or what it left is no text.
    """
    command = find_editor(env)
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        file = Path(folder) / "message.md"
        file.write_text(text, encoding="utf-8")
        try:
            process = await asyncio.create_subprocess_exec(*command, str(file))
        except OSError as error:
            hint = "`EDITOR` names the one that you want"
            raise UsageError(f"cannot start {command[0]}: {error.strerror}", hint=hint) from error
        if await process.wait() != 0:
            return None
        return _read(file)


def find_editor(env: Mapping[str, str]) -> list[str]:
    """The editor's command line: what the person set, else one that is there."""
    for name in VARIABLES:
        if given := env.get(name, "").strip():
            try:
                return shlex.split(given)
            except ValueError as error:  # a quote without its end
                raise UsageError(f"{name} is no command: {error}", hint=f"{name} is '{given[:80]}'") from error
    found = next((program for program in FALLBACKS if shutil.which(program, path=env.get("PATH"))), None)
    if found is None:
        raise UsageError("there is no editor", hint="`EDITOR` names the one that you want")
    return [found]


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > LARGEST:
            raise UsageError(f"that is more than {LARGEST:,} bytes", hint="Nothing was said")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("what the editor left cannot be read", hint="Nothing was said") from error
