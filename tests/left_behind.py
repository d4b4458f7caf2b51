"""Background processes that belong to a folder."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

PROGRAM = b"hermes.cli.memory_background"
END_TIMEOUT_SECONDS = 20.0
"""Maximum time to wait for ending servers; one that nobody stopped lives far longer."""


def servers_below(folder: Path) -> dict[int, Path]:
    """Return the processes of servers whose home is in a folder, each with its home."""
    found: dict[int, Path] = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            home = words[words.index(PROGRAM) + 1] if PROGRAM in words else b""
            if home.startswith(bytes(folder)):
                found[int(path.parent.name)] = Path(os.fsdecode(home))
    return found


def still_below(folder: Path) -> dict[int, Path]:
    """Return them after ending ones had time to finish: a stopped server leaves its folder before it ends."""
    end = time.monotonic() + END_TIMEOUT_SECONDS
    while (found := servers_below(folder)) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def end_all(home: Path) -> None:
    """End every program that works for a home, and those that they started meanwhile."""
    while found := {*_working_for(home), *servers_below(home)}:
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)  # for the system to take them away


def _working_for(home: Path) -> list[int]:
    wanted = b"HERMES_HOME=" + bytes(home)
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted in path.read_bytes().split(b"\0") and path.parent.name != str(os.getpid()):
                found.append(int(path.parent.name))
    return found
