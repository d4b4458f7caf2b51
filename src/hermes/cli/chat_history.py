"""`chat_history`: what was typed at the terminals of a home, for the Up key.

What is typed incognito is kept for this run alone, and what is deleted or forgotten goes from the file too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.pastes import Pastes

if TYPE_CHECKING:
    from prompt_toolkit.history import History


def open_history(path: Path, pastes: Pastes, is_kept: Callable[[], bool]) -> History:
    """What was typed before, whole in the file and with marks for what is long. While it is not kept, what is typed is
    remembered in this run alone."""
    from prompt_toolkit.history import FileHistory

    class ChatHistory(FileHistory):
        def load_history_strings(self) -> Iterable[str]:
            return map(pastes.shorten, super().load_history_strings())

        def store_string(self, string: str) -> None:
            if is_kept():
                super().store_string(pastes.expand(string))

    return ChatHistory(str(path))
