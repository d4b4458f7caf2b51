"""What files of Honcho's this process opens or looks at, heard through an audit hook."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Opens(list[str]):
    """Counts the file operations that mention a word, while it is told to."""

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
