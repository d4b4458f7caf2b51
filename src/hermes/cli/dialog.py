"""Questions at a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping

import typer

from hermes.cli.output import note, printable, say
from hermes.cli.own_name import advise
from hermes.errors import UsageError

MAX_COLUMNS = 100
PROMPT = ": "
YES, NO = ("y", "yes"), ("", "n", "no")
MIN_MEANING_COLUMNS = 24
"""Least width of an option's description beside its word; with less, it goes below."""


def can_ask() -> bool:
    """Return True if standard input and output are a terminal. Scripts are never asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str) -> bool:
    """Ask yes or no; Enter means no. Without a terminal the answer is no."""
    return can_ask() and bool(typer.confirm(question, default=False, err=True))


def confirm_or_text(question: str) -> bool | str:
    """Ask yes or no; Enter means no. Any other text is returned, to be sent as a message."""
    given: str = typer.prompt(f"{question} [y/N]", default="", show_default=False, prompt_suffix=PROMPT, err=True)
    word = given.strip().lower()
    return word in YES if word in (*YES, *NO) else given.strip()


def agree(question: str, doing: str, done: str, yes: bool) -> None:
    """Return if `yes` is set or the user confirms; otherwise print that nothing was `done` and exit with 1. Raises
    UsageError if nobody can be asked."""
    if not yes and not can_ask():
        raise UsageError(f"{doing} needs a confirmation", hint="Add --yes to confirm without a terminal")
    if not yes and not confirm(question):
        note(f"Nothing was {done}.")
        raise typer.Exit(1)


class TerminalDialog:
    """See `hermes.memory.provider.Dialog`. Ctrl-C and Ctrl-D end it."""

    @property
    def can_ask(self) -> bool:
        return can_ask()

    def ask(self, text: str, default: str = "", *, secret: bool = False) -> str:
        shown = f"{text} [{'kept' if secret else printable(default)}]" if default else text
        *before, last = _wrapped(shown, _width() - len(PROMPT))
        for line in before:
            say(line)
        if secret:
            return _ask_hidden(f"{last}{PROMPT}").strip() or default
        given: str = typer.prompt(last, default=default, show_default=False, prompt_suffix=PROMPT)
        return given.strip()

    def choose(self, text: str, options: Mapping[str, str], default: str) -> str:
        words = list(options)
        say()
        self.say(text)
        for line in _listed(options, default):
            say(line)
        while True:
            given = self.ask("  Number or word", default)
            found = _find(given, words)
            if found is not None:
                return found
            self.say(f"  '{printable(given)}' is not an option: {', '.join(words)}")

    def say(self, text: str) -> None:
        for line in advise(text).split("\n"):
            for part in _wrapped(line):
                say(part)


def _ask_hidden(prompt: str) -> str:
    """Ask for a secret without echo. Not Typer's own prompt: that one shows the question before it turns echo off."""
    from getpass import getpass  # imported late: few commands ask

    try:
        return getpass(prompt)
    except (KeyboardInterrupt, EOFError):
        say()
        raise typer.Abort from None


def _find(given: str, words: list[str]) -> str | None:
    """Return the option chosen by its number, its word, or the start of its word; None if not exactly one fits."""
    if given.isascii() and given.isdigit():
        return words[int(given) - 1] if 1 <= int(given) <= len(words) else None
    meant = [word for word in words if word == given] or [word for word in words if given and word.startswith(given)]
    return meant[0] if len(meant) == 1 else None


def _listed(options: Mapping[str, str], default: str) -> list[str]:
    widest = max(map(len, options))
    lines: list[str] = []
    for number, (word, meaning) in enumerate(options.items(), 1):
        mark = "*" if word == default else " "
        head = f" {mark}{number}  {word:<{widest}}  "
        beside = _width() - len(head) >= MIN_MEANING_COLUMNS
        indent = " " * (len(head) if beside else 6)
        body = textwrap.wrap(meaning, max(20, _width() - len(indent))) or [""]
        lines += (
            [f"{head}{body[0]}".rstrip()] if beside else [head.rstrip(), *([f"{indent}{body[0]}"] if body[0] else [])]
        )
        lines += [f"{indent}{part}" for part in body[1:]]
    return lines


def _width() -> int:
    return min(MAX_COLUMNS, shutil.get_terminal_size().columns)


def hang(text: str, indent: int) -> list[str]:
    """Wrap `text` at the terminal's width with a hanging indent. Long words, such as paths, stay whole."""
    width = shutil.get_terminal_size().columns
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def _wrapped(text: str, width: int = 0) -> list[str]:
    """Wrap `text` at the terminal's width; further lines keep its indent."""
    start = text[: len(text) - len(text.lstrip())]
    is_cut = "://" not in text  # URLs stay whole
    wrapper = textwrap.TextWrapper(width or _width(), break_long_words=is_cut, break_on_hyphens=False)
    wrapper.subsequent_indent = start
    return wrapper.wrap(text) or [""]
