"""Editing a text in the user's own editor."""

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
MAX_BYTES = 1_000_000
"""Larger edited texts are refused."""


async def edit_text(text: str, env: Mapping[str, str] = os.environ) -> str | None:
    """Open `text` in the user's editor and return the edited text; None if the editor fails. The editor has the
    terminal meanwhile.

    Raises UsageError if there is no editor, or the result is not UTF-8 text.
    """
    command = find_editor(env)
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        file = Path(folder) / "message.md"
        file.write_text(text, encoding="utf-8")
        try:
            process = await asyncio.create_subprocess_exec(*command, str(file))
        except OSError as error:
            hint = "Set EDITOR to the editor that you want"
            raise UsageError(f"cannot start {command[0]}: {error.strerror}", hint=hint) from error
        if await process.wait() != 0:
            return None
        return _read(file)


def find_editor(env: Mapping[str, str]) -> list[str]:
    """Return the editor's command line: `VISUAL`, `EDITOR`, or an installed fallback."""
    for name in VARIABLES:
        if given := env.get(name, "").strip():
            try:
                return shlex.split(given)
            except ValueError as error:  # a quote without its end
                raise UsageError(f"{name} is not a valid command: {error}", hint=f"{name} is '{given[:80]}'") from error
    found = next((program for program in FALLBACKS if shutil.which(program, path=env.get("PATH"))), None)
    if found is None:
        raise UsageError("no editor found", hint="Set EDITOR to the editor that you want")
    return [found]


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise UsageError(f"the text is larger than {MAX_BYTES:,} bytes", hint="Nothing was sent")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("cannot read the edited text", hint="Nothing was sent") from error
