"""Set up this folder's environment with pip, and show how far it is.

    python scripts/install.py requirements.lock

Runs with the environment's own Python and needs nothing but the standard library. Packages are pinned with their
hashes; what is there in the right version stays as it is. What pip has to say about a failure is printed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections import deque
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off"]
FETCHING = re.compile(
    r"^\s*(?:Downloading|Using cached|Processing)\s+(?:\S*/)?([A-Za-z0-9_.]+)-\d\S*(?:\s+\((\d[^)]*B)\))?"
)
PIN = re.compile(r"^[A-Za-z0-9_.-]+==", re.MULTILINE)
KEPT = 200
"""Lines of pip that are kept for the case that it fails."""
TERMINAL, PLAIN = 0.5, 10.0
"""Seconds between two reports while packages are unpacked: on one row of a terminal, or as lines."""


class Progress:
    """One row that changes at a terminal, a line per report elsewhere."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self.every = TERMINAL if self._live else PLAIN
        self._reported = 0.0

    def show(self, text: str) -> None:
        now = time.monotonic()
        if self._live:
            sys.stderr.write(f"\r\x1b[K  {text}"[:90])
        elif now - self._reported >= self.every:
            self._reported = now
            sys.stderr.write(f"  {text}\n")
        sys.stderr.flush()

    def end(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def install(arguments: list[str], progress: Progress) -> int:
    """Run pip, reporting each package that it fetches and how many are unpacked. Returns its exit code."""
    said: deque[str] = deque(maxlen=KEPT)
    fetched = 0
    unpacked = threading.Event()
    counting: threading.Thread | None = None
    with subprocess.Popen(
        [*PIP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        assert pip.stdout is not None, "a pipe was asked for"
        for line in pip.stdout:
            said.append(line)
            if found := FETCHING.match(line):
                fetched += 1
                progress.show(f"fetching {fetched}: {found[1]} {found[2] or ''}".rstrip())
            elif line.startswith("Installing collected packages:"):
                count = line.count(",") + 1
                counting = threading.Thread(target=count_unpacked, args=(count, unpacked, progress), daemon=True)
                counting.start()
    unpacked.set()
    if counting is not None:
        counting.join()
    progress.end()
    if pip.returncode:
        sys.stderr.writelines(said)
    return pip.returncode


def count_unpacked(count: int, over: threading.Event, progress: Progress) -> None:
    """Report how many of `count` packages are there, until `over`."""
    packages = Path(sysconfig.get_path("purelib"))
    before = len(list(packages.glob("*.dist-info")))
    while not over.wait(progress.every):
        done = len(list(packages.glob("*.dist-info"))) - before
        progress.show(f"unpacking {max(0, min(done, count))} of {count} packages")


def main(lock: str) -> int:
    progress = Progress()
    began = time.monotonic()
    pins = len(PIN.findall(Path(lock).read_text(encoding="utf-8")))
    sys.stderr.write(f"installing the {pins} packages of {lock} ...\n")
    sys.stderr.flush()
    # A lock names everything: that pip need not work out what else is wanted saves seconds.
    code = install(["--no-deps", "--require-hashes", "--requirement", lock], progress)
    if not code:
        progress.show("installing hermes itself")
        code = install(["--quiet", "--no-deps", "--no-build-isolation", "--editable", "."], progress)
    if not code:
        sys.stderr.write(f"ready after {time.monotonic() - began:.0f} s\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
