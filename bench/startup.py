"""Measures the time to the first character against a bare interpreter in the same run, and lists the imports."""

from __future__ import annotations

import re
import subprocess
import sys

from bench.table import Row, report, summarise, time_calls

START_COUNT = 15
COMMANDS = (("--version",), ("--help",), ("config", "path"), ("sessions", "list"))


def run() -> None:
    """Measure and print."""
    bare = summarise("python -c pass", time_calls(lambda: _run("-c", "pass"), START_COUNT))
    rows: list[Row] = [bare]
    for command in COMMANDS:
        taken = time_calls(lambda command=command: _run("-m", "hermes", *command), START_COUNT)  # type: ignore[misc]
        rows.append(summarise(f"hermes {' '.join(command)}", taken, bare))
    report("Startup", rows)
    report("Imports of `hermes sessions` (own time, five largest)", _import_times()[:5])


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def _import_times() -> list[Row]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import hermes.cli.main"], check=True, capture_output=True, text=True
    )
    found = re.findall(r"import time:\s+(\d+) \|\s+(\d+) \|\s+(\S+)", done.stderr)
    rows = [Row(name, int(own) / 1e6, int(total) / 1e6) for own, total, name in found]
    return sorted(rows, key=lambda row: -row.p50)
