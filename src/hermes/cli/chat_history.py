"""The file `chat_history`: earlier input at the terminals of a home, for the Up key.

Incognito input is not written. Deleting or forgetting a message also removes it from the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.pastes import Pastes

if TYPE_CHECKING:
    from prompt_toolkit.history import History


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
