"""An audit hook that records which of Honcho's files this process opens or checks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Opens(list[str]):
    """Counts the file operations whose path contains a word, while switched on."""

    counting = False

    def __init__(self) -> None:
        super().__init__()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.counting and (event == "open" or event.startswith("os.")) and "honcho" in str(arguments):
            self.append(f"{event} {arguments}")

    @contextmanager
    def counted(self) -> Iterator[list[str]]:
        self.clear()
        self.counting = True
        try:
            yield self
        finally:
            self.counting = False


OPENS = Opens()
