"""Set up this folder's environment with pip, and show how far it is.

    python scripts/install.py requirements.lock

Runs with the environment's own Python and needs nothing but the standard library. Packages are pinned with their
hashes; what is there in the right version stays as it is. Two pips work side by side, each on a part of the packages,
and what they unpacked is compiled afterwards on all cores: that takes half the time. What pip has to say about a
failure is printed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off"]
# A lock names everything: that pip need not work out what else is wanted saves seconds.
LOCKED = ["--no-deps", "--no-compile", "--require-hashes", "--requirement"]
MAX_PIPS = 2
"""Maximum number of parallel pips."""
PACKAGES = Path(sysconfig.get_path("purelib"))
FETCHING = re.compile(
    r"^\s*(?:Downloading|Using cached|Processing)\s+(?:\S*/)?([A-Za-z0-9_.]+)-\d\S*(?:\s+\((\d[^)]*B)\))?"
)
PIN = re.compile(r"^(?=[A-Za-z0-9_.-]+==)", re.MULTILINE)
MAX_KEPT_LINES = 200
"""Maximum number of pip's last lines that are printed if it fails."""
TERMINAL, PLAIN = 0.5, 10.0
"""Seconds between two progress reports: on one row of a terminal, or as lines."""


class Progress:
    """Progress of an installation: one changing row on a terminal, a line per report elsewhere. Thread-safe."""

    def __init__(self, count: int) -> None:
        self._live = sys.stderr.isatty()
        self._every = TERMINAL if self._live else PLAIN
        self._reported = 0.0
        self._count = count
        self._before = unpacked()
        self._fetched = 0
        self._lock = threading.Lock()

    def fetched(self, package: str, size: str | None) -> None:
        with self._lock:
            self._fetched += 1
            self._show(f"fetching {self._fetched}: {package} {size or ''}".rstrip())

    def count_until(self, over: threading.Event) -> None:
        """Report the number of installed packages, from the first until `over` is set."""
        while not over.wait(self._every):
            if (there := unpacked()) > self._before:
                self.show(f"{min(there, self._count)} of {self._count} packages are there")

    def show(self, text: str) -> None:
        with self._lock:
            self._show(text)

    def end(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _show(self, text: str) -> None:
        now = time.monotonic()
        if self._live:
            sys.stderr.write(f"\r\x1b[K  {text}"[:90])
        elif now - self._reported >= self._every:
            self._reported = now
            sys.stderr.write(f"  {text}\n")
        sys.stderr.flush()


def unpacked() -> int:
    """Return the number of packages in this environment."""
    return len(list(PACKAGES.glob("*.dist-info")))


def install(arguments: list[str], progress: Progress) -> int:
    """Run pip, reporting each fetched package. Returns its exit code; its output is printed if it failed."""
    said: deque[str] = deque(maxlen=MAX_KEPT_LINES)
    with subprocess.Popen(
        [*PIP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        assert pip.stdout is not None, "a pipe was asked for"
        for line in pip.stdout:
            said.append(line)
            if found := FETCHING.match(line):
                progress.fetched(found[1], found[2])
    if pip.returncode:
        progress.end()
        sys.stderr.writelines(said)
    return pip.returncode


def install_locked(head: str, pins: list[str], progress: Progress) -> int:
    """Install the packages pinned below a heading, in parts in parallel. Returns an exit code."""
    over = threading.Event()
    counting = threading.Thread(target=progress.count_until, args=(over,), daemon=True)
    counting.start()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(MAX_PIPS) as pool:
        parts = [Path(folder) / f"part-{number}.lock" for number in range(min(MAX_PIPS, len(pins)))]
        for number, part in enumerate(parts):
            part.write_text("".join([head, *pins[number::MAX_PIPS]]), encoding="utf-8")
        codes = list(pool.map(lambda part: install([*LOCKED, str(part)], progress), parts))
    over.set()
    counting.join()
    return max(codes)


def main(lock: str, *folders: str) -> int:
    """Install the packages of a lock file, and those in folders."""
    began = time.monotonic()
    head, *pins = PIN.split(Path(lock).read_text(encoding="utf-8"))
    sys.stderr.write(f"installing the {len(pins)} packages of {lock} ...\n")
    sys.stderr.flush()
    progress = Progress(len(pins))
    code = install_locked(head, pins, progress)
    if not code:
        progress.show("compiling")
        # What cannot be compiled is a file for another Python, which nobody imports.
        subprocess.run([sys.executable, "-m", "compileall", "-q", "-q", "-j", "0", PACKAGES], check=False)
    for folder in folders if not code else ():
        progress.show("installing hermes itself")
        code = install(["--quiet", "--no-deps", "--no-build-isolation", "--editable", folder], progress)
    progress.end()
    if not code:
        sys.stderr.write(f"ready after {time.monotonic() - began:.0f} s\n")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
