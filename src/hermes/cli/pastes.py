"""Long pasted texts: a mark stands for each while it is edited and shown; the full text is sent."""

from __future__ import annotations

import re

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
