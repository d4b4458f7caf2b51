"""Yes or no, where there is a person to ask."""

from __future__ import annotations

import sys

import typer

from hermes.errors import UsageError


def can_ask() -> bool:
    """Whether a person sees a question and can answer it; a script is never asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str) -> bool:
    """Ask yes or no; Enter is no. Where nobody can be asked it is no too."""
    return can_ask() and bool(typer.confirm(question, default=False, err=True))


def agreed(question: str, doing: str, yes: bool) -> bool:
    """Whether someone wants it: `yes` says so, or a person does now. Raises UsageError where nobody can be asked."""
    if yes:
        return True
    if not can_ask():
        raise UsageError(f"{doing} needs a yes", hint="Add --yes when nobody is there to answer")
    return confirm(question)
