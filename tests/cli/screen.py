"""The real program in a pseudo-terminal, seen through a terminal emulator."""

from __future__ import annotations

import fcntl
import os
import re
import select
import sqlite3
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeAlias

import pyte

ENTER, ALT_ENTER, TAB, UP = "\r", "\x1b\r", "\t", "\x1b[A"
CTRL_C, CTRL_D = "\x03", "\x04"
DEADLINE_SECONDS = 120.0
"""Ends a test that hangs."""
PAINT = re.compile(rb"\x1b\[(?!0?m)[0-9;]*m")
"""Matches any style code."""


class Screen:
    """Runs a hermes command at a terminal while the block runs. A failed wait shows the screen."""

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str],
        columns: int = 80,
        rows: int = 40,
        patience: float = DEADLINE_SECONDS,
        program: Sequence[str] = (sys.executable, "-m", "hermes"),
    ) -> None:
        self._patience = patience
        self._command = [*program, *arguments]
        quiet = ("HERMES_MEMORY_PROVIDER", "HERMES_AUTO_TITLE", "HERMES_MODEL_TOOLS")
        kept = {name: os.environ[name] for name in ("PATH", *quiet) if name in os.environ}
        self._env = {"TERM": "xterm-256color", "HERMES_OWNER_NAME": "", **kept, **env}
        self._emulated = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._emulated)
        self._gone = False
        self.raw = b""

    def __enter__(self) -> Self:
        self._ours, theirs = os.openpty()
        self._resize()
        # The emulator answers when the program asks where the cursor is.
        self._emulated.write_process_input = self.type  # type: ignore[method-assign]
        self.process = subprocess.Popen(
            self._command, stdin=theirs, stdout=theirs, stderr=theirs, env=self._env, start_new_session=True
        )
        os.close(theirs)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    @property
    def rows(self) -> list[str]:
        """The visible rows, without trailing spaces."""
        return [row.rstrip() for row in self._emulated.display]

    @property
    def status(self) -> str:
        """The lowest row with text below the prompt, or ""."""
        below = self.rows[self._emulated.cursor.y + 1 :]
        return next((row for row in reversed(below) if row), "")

    @property
    def prompt(self) -> str:
        """The row of the cursor."""
        return self.rows[self._emulated.cursor.y]

    @property
    def takes_whole_lines(self) -> bool:
        """True while the terminal buffers and echoes whole lines itself."""
        return bool(termios.tcgetattr(self._ours)[3] & termios.ICANON)

    def style_of(self, text: str) -> tuple[str, bool]:
        """Return the colour of the first visible `text`, and whether it is bold."""
        row = next(number for number, row in enumerate(self._emulated.display) if text in row)
        letter = self._emulated.buffer[row][self._emulated.display[row].index(text)]
        return letter.fg, letter.bold

    def type(self, data: str) -> None:
        """Type keys, as fast as the program reads them."""
        keys = data.encode()
        while keys:
            if select.select([], [self._ours], [], 0.1)[1]:
                keys = keys[os.write(self._ours, keys[:1024]) :]
            else:
                self._read()

    def resize(self, columns: int) -> None:
        """Change the window's width."""
        self._emulated.resize(columns=columns)
        self._resize()

    def wait(self, seen: Callable[[Self], bool]) -> Self:
        """Return when `seen` is true."""
        until = time.monotonic() + self._patience
        while not seen(self):
            if self._gone or time.monotonic() > until:
                raise AssertionError("not to be seen:\n" + "\n".join(self.rows))
            self._read()
        return self

    def wait_for(self, text: str) -> Self:
        """Return when `text` is somewhere on the screen."""
        return self.wait(lambda screen: text in "\n".join(screen.rows))

    def wait_for_rows(self, *wanted: str) -> Self:
        """Return when these rows follow one another somewhere on the screen."""
        return self.wait(lambda screen: "\n".join(["", *wanted, ""]) in "\n".join(["", *screen.rows, ""]))

    def wait_for_prompt(self) -> Self:
        """Return when the prompt is there and empty."""
        return self.wait(lambda screen: screen.prompt == "›" and screen.status != "")

    def ended(self) -> int:
        """Wait for the program to end and return its exit code."""
        until = time.monotonic() + self._patience
        while not self._gone and time.monotonic() < until:
            self._read()
        return self.process.wait(self._patience)

    def _read(self) -> None:
        """Read the program's output for a moment."""
        if not select.select([self._ours], [], [], 0.1)[0]:
            return
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux says so when the last one on the other side is gone
            self._gone = True
            return
        self.raw += data
        self._stream.feed(data)

    def _resize(self) -> None:
        size = struct.pack("HHHH", self._emulated.lines, self._emulated.columns, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)


Chat: TypeAlias = Callable[..., Screen]
"""The type of the `chat` fixture."""


def plain_env(home: Path) -> dict[str, str]:
    """Return an environment without a model."""
    return {
        name: os.environ[name]
        for name in (
            "PYTHONPATH",
            "LANG",
            "HERMES_MEMORY_PROVIDER",
            "HERMES_AUTO_TITLE",
            "HERMES_MODEL_TOOLS",
            "HERMES_OWNER_NAME",
        )
        if name in os.environ
    } | {
        "HERMES_HOME": str(home),
        "PYTHONUTF8": "1",
    }


def stored(home: Path) -> list[tuple[str, str]]:
    """Return role and content of all messages, in order; empty without a store."""
    connection = sqlite3.connect(home / "state.db")
    try:
        return connection.execute("SELECT role, content FROM messages ORDER BY id").fetchall()
    finally:
        connection.close()
