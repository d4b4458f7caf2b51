"""The background process: how it is started, and what it said when it did not come up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from hermes.embedded.place import Place
from hermes.errors import MemoryServerError
from hermes.files import check_room

PROGRAM = "hermes.cli.memory_background"
DETACHED = 0x00000008
"""What Windows calls a process that has no console of ours."""
TAIL = 2000
"""Characters of what a process said that are looked at."""


def start_process(place: Place) -> subprocess.Popen[bytes]:
    """Start a server of the folder, which outlives this process. Raises MemoryServerError when the folder cannot be
    written."""
    _check_room(place.folder, place.start_log.parent)
    try:
        place.start_log.unlink(missing_ok=True)  # not cut short: a server that is ending may still write to it
        with os.fdopen(os.open(place.start_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as said:
            return subprocess.Popen(
                # -P: the folder where it stands is no place to import from
                [sys.executable, "-P", "-m", PROGRAM, str(place.home), str(place.folder)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=place.home,
                start_new_session=os.name != "nt",
                creationflags=DETACHED if os.name == "nt" else 0,
            )
    except OSError as error:
        raise MemoryServerError(f"cannot start the memory server: {error}") from error


def let_run(process: subprocess.Popen[bytes]) -> None:
    """Let the process go on without us. Should it end first, its exit status is collected, so that no zombie stays."""
    threading.Thread(target=process.wait, daemon=True, name="memory-server-ended").start()


def last_words(place: Place) -> str:
    """The last line that the process left when it could not start."""
    try:
        said = place.start_log.read_bytes()[-TAIL:].decode(errors="replace")
    except OSError as error:
        return f"what it said cannot be read: {error.strerror}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1].removeprefix("hermes: ") if lines else f"it said nothing; {place.log} may tell"


def _check_room(*folders: Path) -> None:
    """Each folder is there, may be written, and its disk has room."""
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
