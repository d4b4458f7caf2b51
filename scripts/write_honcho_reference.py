"""Writes docs/honcho-reference.md from the code: every key of honcho.json and every command of `hermes honcho`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import typer.main

from hermes.home import Home
from hermes.honcho.commands import make_commands
from hermes.honcho.keys import TABLE, Key
from hermes.honcho.server import Machine
from hermes.memory.provider import PluginConsole
from hermes.settings.kinds import in_words
from scripts.write_reference import describe_commands

HEADINGS = {
    "apiKey": "Identity and connection",
    "pinUserPeer": "Who is who on a gateway",
    "recallMode": "Memory and recall",
    "writeFrequency": "Writing",
    "sessionStrategy": "Session names",
    "dialecticDepth": "Dialectic and reasoning",
    "contextTokens": "Budgets",
    "contextCadence": "Cadence",
}
"""The first key of each section, with the section's title."""
TARGET = Path(__file__).parent.parent / "docs" / "honcho-reference.md"


def render() -> str:
    """Return the whole page."""
    group = make_commands(Machine(Home(Path("home")), {}), cast(PluginConsole, None))
    parts = [
        "# Honcho: reference",
        "You want to know which key is in force, and where its value comes from: type `hermes honcho status`.",
        "Made from the code by `make docs`; change the code, not this page. [honcho.md](honcho.md) explains it.",
        "## Keys of `honcho.json`",
        "Each is looked for in the host block, at the root of the file, in the variable; then it is the default. "
        "Commands write into the profile's own host block, and *shared* keys where all profiles find them. "
        "`HERMES_HONCHO_HOST` names another host block.",
        *_sections(),
        "## Commands",
        "`hermes honcho --target-profile NAME …` works on another profile.",
        *describe_commands(typer.main.get_command(group), "hermes honcho"),
    ]
    return "\n\n".join(parts) + "\n"


def _sections() -> Iterator[str]:
    starts = [place for place, row in enumerate(TABLE) if row.key in HEADINGS]
    for start, end in pairwise([*starts, len(TABLE)]):
        yield f"### {HEADINGS[TABLE[start].key]}"
        rows = map(_row, TABLE[start:end])
        yield "\n".join(["| key | default | takes | variable | what it does |", "|---|---|---|---|---|", *rows])


def _row(row: Key[Any]) -> str:
    empty = row.default in (None, "", {})
    default = "" if empty else f"`{in_words(row.shown(row.default))}`"
    variable = f"`{row.env}`" if row.env else ""
    also = "".join(f", also `{key}`" for key in row.also)
    shared = " *shared*" if row.scope == "shared" else ""
    return f"| `{row.key}`{also}{shared} | {default} | {row.allowed} | {variable} | {row.help} |"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
