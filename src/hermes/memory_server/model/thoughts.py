"""What a model thinks aloud between tags, taken out of its text, whole or as it comes."""

from __future__ import annotations

import re

OPENING = re.compile(r"<(think|thinking|reasoning)>", re.IGNORECASE)
CLOSING = re.compile(r"</(think|thinking|reasoning)>", re.IGNORECASE)
TAG_CHARS = len("</reasoning>")


def without_thoughts(text: str) -> str:
    """Return the text without thoughts. A model may forget the end of them, and an endpoint their beginning."""
    visible = VisibleText()
    shown = visible.add(text)
    return (shown + visible.end()).strip()


class VisibleText:
    """Lets what is no thought through, of a text that comes in pieces."""

    def __init__(self) -> None:
        self._rest = ""
        self._is_thought = self._is_begun = False

    def add(self, piece: str) -> str:
        """Return what can be shown by now. What may become a tag is held back."""
        self._rest += piece
        shown = ""
        while (tag := (CLOSING if self._is_thought else OPENING).search(self._rest)) is not None:
            shown += "" if self._is_thought else self._rest[: tag.start()]
            self._rest = self._rest[tag.end() :]
            self._is_thought = not self._is_thought
        if not self._is_thought and (tag := CLOSING.search(self._rest)) is not None:  # nothing began it
            shown, self._rest = "", self._rest[tag.end() :]
        held = self._rest.rfind("<", -TAG_CHARS)
        done = len(self._rest) if held < 0 else held
        if not self._is_thought:
            shown += self._rest[:done]
        self._rest = self._rest[done:]
        shown = shown if self._is_begun else shown.lstrip()
        self._is_begun = self._is_begun or bool(shown)
        return shown

    def end(self) -> str:
        """Return what was held back, once the text is over."""
        rest, self._rest = self._rest, ""
        return "" if self._is_thought else rest
