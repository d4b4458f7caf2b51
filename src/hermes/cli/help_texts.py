"""What a list of commands says of each: one sentence, whole, however narrow the terminal is."""

from __future__ import annotations

from typing import Any


def first_sentence(text: str) -> str:
    """The first sentence of a help text, without its full stop."""
    first = " ".join(text.split("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".")


def show_whole(command: Any) -> None:
    """Have the list of commands wrap what it says of them, where Typer would cut it off. Takes a command of Typer's."""
    for child in getattr(command, "commands", {}).values():
        child.short_help = f"{first_sentence(child.help or '')}."
        show_whole(child)
