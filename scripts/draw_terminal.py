"""Draws the terminal of README.md: the real program in a pseudo-terminal, with a fresh home and no model.

    python -m scripts.draw_terminal        # writes docs/images/terminal-light.svg and terminal-dark.svg

The pictures hold what the program printed and what was typed. Bash, and a system with pseudo-terminals, are needed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from io import StringIO
from itertools import groupby
from pathlib import Path

import pyte
from rich.color import Color, ColorParseError
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from hermes.slash.remembering import ENDED, LEARNT_FROM
from tests.cli.screen import CTRL_D, ENTER, Screen

TARGET = Path(__file__).parent.parent / "docs" / "images"
COLUMNS, ROWS = 92, 48
SHELL, TALK = "$", "›"
CONVERSATIONS: Sequence[Sequence[tuple[str, str]]] = (
    (
        ("I live in Lisbon.", "Saved: I live in Lisbon."),
        ("My cat is called Miso.", "Saved: My cat"),
        ("I moved to Porto last week.", "Saved: I moved"),
    ),
    (
        ("Where do I live?", "From memory: “I moved to Porto"),
        ("/memory", ENDED),
        ("/memory why 1", LEARNT_FROM),
    ),
)
"""Input of each `hermes chat`, and the output that is waited for. Each chat is a separate process and session."""
FAINT = re.compile(rb"(\x1b\[(?:\d+;)*)2((?:;\d+)*m)")
GREY = rb"\g<1>90\g<2>"
"""The emulator knows no faint letters: they are drawn grey."""
BASIC = [(0, 0, 0), (197, 52, 52), (17, 122, 68), (146, 100, 0), (33, 90, 200), (140, 60, 170), (0, 122, 140)]
LIGHT = TerminalTheme(
    (255, 255, 255), (31, 35, 40), [*BASIC, (110, 119, 129)], [(110, 119, 129), *BASIC[1:], (31, 35, 40)]
)
SOFT = [(72, 79, 88), (255, 123, 114), (86, 211, 100), (227, 179, 65), (121, 192, 255), (210, 168, 255), (86, 212, 221)]
DARK = TerminalTheme(
    (13, 17, 23), (230, 237, 243), [*SOFT, (177, 186, 196)], [(139, 148, 158), *SOFT[1:], (255, 255, 255)]
)
NAMES = {"brown": "yellow", "brightbrown": "bright_yellow"}
FONT = re.compile(r"\s*@font-face \{.*?\}\n", re.DOTALL)


def record() -> bytes:
    """Talk in a new home and return what the terminal was sent."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, chdir(folder):
        env = _prepare(Path(folder))
        os.chdir(env["HOME"])
        program = ("bash", "--norc", "--noprofile", "-i")
        with Screen(env=env, columns=COLUMNS, rows=ROWS, program=program) as screen:
            _talk(screen)
            seen = screen.raw
            screen.type(CTRL_D)
            screen.wait(lambda one: one.prompt == SHELL)
        subprocess.run(["hermes", "memory", "stop"], env=env, check=True, capture_output=True)
        return seen


def _prepare(folder: Path) -> dict[str, str]:
    """Make the home and a command `hermes`, and return the environment. The first greeting of a home is left out."""
    command = folder / "bin" / "hermes"
    home = folder / "nina"  # a conversation is named after the directory that it began in
    for made in (command.parent, home):
        made.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m hermes "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    env = {"HOME": str(home), "PATH": path, "PS1": f"{SHELL} ", "PYTHONUTF8": "1", "TERM": "xterm-256color"}
    os.environ["PATH"] = path  # where commands are looked for before the environment is handed over
    for arguments in (("memory", "start"), ("chat", "-q", "hello")):
        subprocess.run(["hermes", *arguments], env=env, check=True, capture_output=True, cwd=home)
    return env


def _talk(screen: Screen) -> None:
    for number, said in enumerate(CONVERSATIONS):
        _type_at(screen, SHELL, "hermes chat")
        for text, awaited in said:
            _type_at(screen, TALK, text)
            screen.wait_for(awaited)
        screen.wait(lambda one: one.prompt == TALK and one.status != "")
        if number < len(CONVERSATIONS) - 1:
            screen.type(CTRL_D)


def _type_at(screen: Screen, prompt: str, text: str) -> None:
    screen.wait(lambda one: one.prompt == prompt)
    screen.type(text + ENTER)


def draw(raw: bytes, theme: TerminalTheme) -> str:
    """Return an SVG of the terminal as it stood in the end."""
    emulated = pyte.Screen(COLUMNS, ROWS)
    pyte.ByteStream(emulated).feed(FAINT.sub(GREY, raw))
    last = max(number for number, row in enumerate(emulated.display) if row.strip())
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    for number in range(last + 1):
        row = [emulated.buffer[number][column] for column in range(COLUMNS)]
        parts = [("".join(char.data for char in those), style) for style, those in groupby(row, _style)]
        console.print(Text.assemble(*parts), soft_wrap=True)
    svg = FONT.sub("", console.export_svg(title="hermes chat", theme=theme, unique_id="t"))
    svg = svg.replace("rgba(255,255,255,0.35)", "rgb(140,149,159)")  # a frame that is seen on white too
    return svg.replace("Fira Code, monospace", "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace")


def _style(char: pyte.screens.Char) -> Style:
    return Style(color=_color(char.fg), bgcolor=_color(char.bg), bold=char.bold, reverse=char.reverse)


def _color(name: str) -> Color | None:
    if name == "default":
        return None
    name = NAMES.get(name, name.replace("bright", "bright_"))
    try:
        return Color.parse(name)
    except ColorParseError:
        return Color.parse(f"#{name}")


if __name__ == "__main__":
    said = record()
    for name, theme in (("light", LIGHT), ("dark", DARK)):
        (TARGET / f"terminal-{name}.svg").write_text(draw(said, theme), encoding="utf-8")
