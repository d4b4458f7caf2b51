"""The background process: how it is started, and its output after a failed start."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from hermes.embedded.place import Place
from hermes.errors import MemoryServerError
from hermes.files import check_room

SERVER_MODULE = "hermes.cli.memory_background"

MAX_TAIL_BYTES = 2000
"""Number of bytes at the end of the output that are read."""


def start_process(place: Place) -> subprocess.Popen[bytes]:
    """Start a server of the folder, which outlives this process. Raises MemoryServerError if the folder is not
    writable."""
    _check_room(place.folder, place.start_log.parent)
    try:
        place.start_log.unlink(missing_ok=True)  # not cut short: a server that is ending may still write to it
        with os.fdopen(os.open(place.start_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as said:
            return subprocess.Popen(
                # -P: the folder where it stands is no place to import from
                [sys.executable, "-P", "-m", SERVER_MODULE, str(place.home), str(place.folder)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=place.home,
                start_new_session=os.name != "nt",
                creationflags=0x00000008 if os.name == "nt" else 0,  # DETACHED_PROCESS: without our console
            )
    except OSError as error:
        raise MemoryServerError(f"cannot start the memory server: {error}") from error


def let_run(process: subprocess.Popen[bytes]) -> None:
    """Leave the process running. If it ends first, a thread collects its exit status, so that no zombie stays."""
    threading.Thread(target=process.wait, daemon=True, name="memory-server-ended").start()


def last_words(place: Place) -> str:
    """Return the last line of output of a process that could not start."""
    try:
        said = place.start_log.read_bytes()[-MAX_TAIL_BYTES:].decode(errors="replace")
    except OSError as error:
        return f"its output cannot be read: {error.strerror}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1].removeprefix("hermes: ") if lines else f"no output; see {place.log}"


def _check_room(*folders: Path) -> None:
    """Check that each folder exists and is writable, and that its disk has space."""
    disks: set[int] = set()
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            disk = folder.stat().st_dev
            if disk not in disks or not os.access(folder, os.W_OK):
                check_room(folder)
            disks.add(disk)
        except OSError as error:
            raise MemoryServerError(
                f"the memory server cannot write in {folder}: {error.strerror}",
                hint="Free some space or check its permissions, or set HERMES_MEMORY_DATA to another folder",
            ) from error
