"""Questions in the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping

import typer

from hermes.cli.output import note, printable, say
from hermes.cli.own_name import advise
from hermes.errors import UsageError

WIDEST = 100
PROMPT = ": "
YES, NO = ("y", "yes"), ("", "n", "no")
LEAST_MEANING = 24
"""Columns that the meaning of an option has beside its word; where there are fewer it goes below."""


def can_ask() -> bool:
    """Whether a person sees a question and can answer it; a script is never asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str) -> bool:
    """Ask yes or no; Enter is no. Where nobody can be asked it is no too."""
    return can_ask() and bool(typer.confirm(question, default=False, err=True))


def ask_or_hear(question: str) -> bool | str:
    """Ask yes or no; Enter is no. Whoever types anything else did not answer: that text is returned, to be said."""
    given: str = typer.prompt(f"{question} [y/N]", default="", show_default=False, prompt_suffix=PROMPT, err=True)
    word = given.strip().lower()
    return word in YES if word in (*YES, *NO) else given.strip()


def agree(question: str, doing: str, done: str, yes: bool) -> None:
    """Go on when someone wants it: `yes` says so, or a person does now; else say that nothing was `done`, and end the
    command. Raises UsageError where nobody can be asked."""
    if not yes and not can_ask():
        raise UsageError(f"{doing} needs a yes", hint="Add --yes when nobody is there to answer")
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
            self.say(f"  '{printable(given)}' is none of them: {', '.join(words)}")

    def say(self, text: str) -> None:
        for line in advise(text).split("\n"):
            for part in _wrapped(line):
                say(part)


def _ask_hidden(prompt: str) -> str:
    """Ask for what nobody may see. Whoever sees the question may type: Typer shows it before it begins to listen."""
    from getpass import getpass  # few commands ask anything

    try:
        return getpass(prompt)
    except (KeyboardInterrupt, EOFError):
        say()
        raise typer.Abort from None


def _find(given: str, words: list[str]) -> str | None:
    """The option that a number, a word or its beginning means."""
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
        beside = _width() - len(head) >= LEAST_MEANING
        indent = " " * (len(head) if beside else 6)
        body = textwrap.wrap(meaning, max(20, _width() - len(indent))) or [""]
        lines += (
            [f"{head}{body[0]}".rstrip()] if beside else [head.rstrip(), *([f"{indent}{body[0]}"] if body[0] else [])]
        )
        lines += [f"{indent}{part}" for part in body[1:]]
    return lines


def _width() -> int:
    return min(WIDEST, shutil.get_terminal_size().columns)


def hang(text: str, indent: int) -> list[str]:
    """`text` in lines of the terminal's width, the first as it stands and the others this far in. A path that is longer
    than a line stays whole."""
    width = shutil.get_terminal_size().columns
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def _wrapped(text: str, width: int = 0) -> list[str]:
    """`text` in lines of the terminal's width; those that follow begin where it began."""
    start = text[: len(text) - len(text.lstrip())]
    is_cut = "://" not in text  # an address is only useful whole
    wrapper = textwrap.TextWrapper(width or _width(), break_long_words=is_cut, break_on_hyphens=False)
    wrapper.subsequent_indent = start
    return wrapper.wrap(text) or [""]
