"""Processes in the background that belong to a folder."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

PROGRAM = b"hermes.cli.memory_background"


def servers_below(folder: Path) -> list[int]:
    """The processes of servers whose home is in a folder."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if PROGRAM in words and words[words.index(PROGRAM) + 1].startswith(bytes(folder)):
                found.append(int(path.parent.name))
    return found


def end_all(home: Path) -> None:
    """End every program that works for a home: who delivers in the background, and then the server it may start."""
    wanted = b"HERMES_HOME=" + bytes(home)
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted in path.read_bytes().split(b"\0") and path.parent.name != str(os.getpid()):
                os.kill(int(path.parent.name), signal.SIGKILL)
