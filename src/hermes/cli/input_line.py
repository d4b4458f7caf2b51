"""Long pasted texts: a mark stands for each while it is edited and shown; the full text is sent.

Editing a text in the user's own editor.

The file `chat_history`: earlier input at the terminals of a home, for the Up key.

Incognito input is not written. Deleting or forgetting a message also removes it from the file.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.errors import UsageError

if TYPE_CHECKING:
    from prompt_toolkit.history import History

MAX_LINES, MAX_CHARS = 10, 800
"""Longer pasted texts are shown as a mark."""
MARK = r"\[pasted [\d,]+ (?:lines|characters)(?: #\d+)?\]"


class Pastes:
    """The texts behind the marks in one conversation."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def shorten(self, text: str) -> str:
        """Return a mark for a long text, and any other text unchanged."""
        lines = text.rstrip("\n").count("\n") + 1
        if lines <= MAX_LINES and len(text) <= MAX_CHARS:
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        mark, number = f"[pasted {size}]", 1
        while self._texts.setdefault(mark, text) != text:
            number += 1
            mark = f"[pasted {size} #{number}]"
        return mark

    def expand(self, text: str) -> str:
        """Return `text` with each mark replaced by its pasted text."""
        return re.sub(MARK, lambda mark: self._texts.get(mark[0], mark[0]), text)

    def mark_before(self, text: str) -> str:
        """Return the mark that `text` ends with, or ""."""
        found = [mark[0] for mark in re.finditer(MARK, text) if mark.end() == len(text)]
        return found[0] if found and found[0] in self._texts else ""


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


def open_history(path: Path, pastes: Pastes, is_kept: Callable[[], bool]) -> History:
    """Return the input history: long pastes are whole in the file and short marks on screen. While `is_kept()` is
    false, input stays in memory and is not written."""
    from prompt_toolkit.history import FileHistory

    class ChatHistory(FileHistory):
        def load_history_strings(self) -> Iterable[str]:
            return map(pastes.shorten, super().load_history_strings())

        def store_string(self, string: str) -> None:
            if is_kept():
                super().store_string(pastes.expand(string))

    return ChatHistory(str(path))
