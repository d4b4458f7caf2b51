"""Real processes for tests: one of our modules, started with pipes."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def start(module: str, *args: object) -> subprocess.Popen[str]:
    """Start `python -m module args`, with text pipes to its stdin, stdout and stderr."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, args)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def say(process: subprocess.Popen[str], line: str) -> None:
    """Write one line to its stdin."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    """Read the process's next line. Fails with its stderr if it ended instead."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.endswith("\n"):
        _, errors = await_end(process)
        raise AssertionError(f"the process ended early ({process.returncode}): {errors}")
    return line.rstrip("\n")


def finish(process: subprocess.Popen[str]) -> str:
    """Close its stdin, wait for a successful end, and return the rest of its output."""
    output, errors = await_end(process)
    assert process.returncode == 0, errors
    assert errors == ""
    return output


async def stop_between_writes(process: subprocess.Popen[str], file: Path) -> None:
    """Stop a process while it does not hold the file's write lock, without which nobody else could write."""
    probe = sqlite3.connect(file, isolation_level=None, timeout=0.2)
    try:
        while True:
            os.kill(process.pid, signal.SIGSTOP)
            try:
                probe.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.kill(process.pid, signal.SIGCONT)
                await asyncio.sleep(0.01)
            else:
                probe.execute("ROLLBACK")
                return
    finally:
        probe.close()


def await_end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Close its stdin, wait for its end, and return the rest of both streams."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdin.close()
        # Not communicate(), which loses what readline() has buffered.
        return process.stdout.read(), process.stderr.read()
