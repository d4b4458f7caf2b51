"""Long pasted texts: a mark stands for each while it is edited and shown, and the text itself is what is said."""

from __future__ import annotations

import re

LINES, CHARACTERS = 10, 800
"""A pasted text with more than that is shown as a mark."""
MARK = r"\[pasted [\d,]+ (?:lines|characters)(?: #\d+)?\]"


class Pastes:
    """The texts behind the marks of one conversation."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def shorten(self, text: str) -> str:
        """A mark for a long text, the text itself for any other."""
        lines = text.rstrip("\n").count("\n") + 1
        if lines <= LINES and len(text) <= CHARACTERS:
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        mark, number = f"[pasted {size}]", 1
        while self._texts.setdefault(mark, text) != text:
            number += 1
            mark = f"[pasted {size} #{number}]"
        return mark

    def expand(self, text: str) -> str:
        """`text` with the pasted texts in place of their marks."""
        return re.sub(MARK, lambda mark: self._texts.get(mark[0], mark[0]), text)

    def mark_before(self, text: str) -> str:
        """The mark that `text` ends with, "" when it ends with something else."""
        found = [mark[0] for mark in re.finditer(MARK, text) if mark.end() == len(text)]
        return found[0] if found and found[0] in self._texts else ""
