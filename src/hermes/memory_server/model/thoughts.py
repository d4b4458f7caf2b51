"""Removal of the thoughts that a model writes between tags, from a whole text or from a stream."""

from __future__ import annotations

import re

OPENING = re.compile(r"<(think|thinking|reasoning)>", re.IGNORECASE)
CLOSING = re.compile(r"</(think|thinking|reasoning)>", re.IGNORECASE)
TAG_CHARS = len("</reasoning>")


def without_thoughts(text: str) -> str:
    """Return the text without thoughts. A model may omit their end, and an endpoint their beginning."""
    visible = VisibleText()
    shown = visible.add(text)
    return (shown + visible.end()).strip()


class VisibleText:
    """A filter that removes thoughts from a text that arrives in pieces."""

    def __init__(self) -> None:
        self._rest = ""
        self._is_thought = self._is_begun = False

    def add(self, piece: str) -> str:
        """Add a piece and return the text that can be shown. What may become a tag is held back."""
        self._rest += piece
        shown = ""
        while (tag := (CLOSING if self._is_thought else OPENING).search(self._rest)) is not None:
            shown += "" if self._is_thought else self._rest[: tag.start()]
            self._rest = self._rest[tag.end() :]
            self._is_thought = not self._is_thought
        if (
            not self._is_thought and (tag := CLOSING.search(self._rest)) is not None
        ):  # a closing tag without an opening one
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
        """End the text and return what was held back."""
        rest, self._rest = self._rest, ""
        return "" if self._is_thought else rest
