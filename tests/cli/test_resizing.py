"""Resizing a window in tmux, which reflows what was drawn, as most terminals do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.chatting import environment, serving

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux"),
]

DEADLINE_SECONDS = 120.0


class Window:
    """A tmux window that runs a program."""

    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / "tmux")

    def ask(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_SECONDS).stdout

    def start(self, env: dict[str, str], *command: str) -> None:
        known = [f"{name}={value}" for name, value in env.items() if name.startswith(("HERMES", "OPENAI", "PYTHON"))]
        size = ("-x", "100", "-y", "30")
        self.ask("-f", os.devnull, "new-session", "-d", *size, "env", *known, *command)

    def resize(self, columns: int) -> None:
        self.ask("resize-window", "-x", str(columns), "-y", "30")

    def rows(self) -> list[str]:
        return self.ask("capture-pane", "-p").rstrip().split("\n")

    def wait(self, seen: Callable[[list[str]], bool]) -> list[str]:
        until = time.monotonic() + DEADLINE_SECONDS
        while not seen(rows := self.rows()):
            if time.monotonic() > until:
                raise AssertionError("not to be seen:\n" + "\n".join(rows))
            time.sleep(0.1)
        return rows

    def wait_for(self, beginning: str) -> None:
        """Wait until a row starts with `text`."""
        self.wait(lambda rows: any(row.startswith(beginning) for row in rows))


@pytest.fixture
def window(tmp_path_factory: pytest.TempPathFactory, processes: None) -> Iterator[Window]:
    window = Window(tmp_path_factory.mktemp("t"))
    yield window
    window.ask("kill-server")


@pytest.mark.contract("10.20")
def test_a_typed_line_is_there_once_however_the_window_is_resized(window: Window, home: Path) -> None:
    window.start(environment(home), sys.executable, "-m", "hermes", "chat")
    window.wait(lambda rows: "›" in rows)
    typed = "a typed line that is long enough to be folded as soon as the window gets narrow, and narrower"
    window.ask("send-keys", "-l", typed)
    window.wait(lambda rows: any(row.endswith("narrower") for row in rows))
    for columns in (60, 45, 80, 50, 100):
        window.resize(columns)
        window.wait(lambda rows: sum("a typed line" in row for row in rows) == 1 and "memory" in rows[-1])


@pytest.mark.contract("10.20")
def test_a_reply_is_whole_and_once_however_the_window_is_resized_meanwhile(window: Window, home: Path) -> None:
    lines = [
        f"Line {number} has some words and **bold** ones, so that it may have to be folded." for number in range(8)
    ]
    with serving([{"says": {"text": "\n".join(lines), "pause": 0.01}}], then={"echo": True}) as endpoint:
        window.start(environment(home, endpoint.base_url), sys.executable, "-m", "hermes", "chat")
        window.wait(lambda rows: "›" in rows)
        window.ask("send-keys", "go", "Enter")
        for number, columns in enumerate((60, 80, 50, 100)):
            window.wait_for(f"Line {number} ")
            window.resize(columns)
        wanted = [f"Line {number}" for number in range(8)]
        window.wait(lambda rows: [row[:6] for row in rows if row.startswith("Line")] == wanted and rows[-2:-1] == ["›"])
