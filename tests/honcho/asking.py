"""A person at the terminal who answers what a test says, in order."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hermes.cli.dialog import TerminalDialog


class Person:
    """Answers questions in order; "" accepts the offered value. A question without an answer fails the test."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.heard: list[str] = []
        self.offered: dict[str, str] = {}
        """The options of the last choice."""
        self.offers: dict[str, str] = {}
        """The options of all choices."""

    def ask(self, text: str, default: str = "", *, secret: bool = False) -> str:
        self.asked.append(text)
        assert self.answers, f"nobody said what to answer to: {text}"
        return self.answers.pop(0) or default

    def choose(self, text: str, options: Mapping[str, str], default: str) -> str:
        self.offered = dict(options)
        self.offers |= options
        answer = self.ask(text, default)
        assert answer in options, f"{answer} is none of {list(options)} ({text})"
        return answer

    def say(self, text: str) -> None:
        self.heard.append(text)

    def sits_down(self, monkeypatch: pytest.MonkeyPatch) -> Person:
        """Let this person answer all questions of the terminal from now on."""
        monkeypatch.setattr(TerminalDialog, "can_ask", True)
        for name in ("ask", "choose", "say"):
            method = getattr(self, name)
            monkeypatch.setattr(TerminalDialog, name, lambda _, *args, _m=method, **given: _m(*args, **given))
        return self
