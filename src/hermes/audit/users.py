"""Which other processes have a file open, where the system tells."""

from __future__ import annotations

import os
from pathlib import Path


def other_users(path: Path, processes: Path = Path("/proc")) -> list[int]:
    """The process ids; none where the system does not say, or only lets the owner look."""
    wanted = str(path.resolve())
    found = []
    for entry in processes.glob("[0-9]*"):
        if int(entry.name) != os.getpid() and wanted in _open_files(entry):
            found.append(int(entry.name))
    return sorted(found)


def _open_files(process: Path) -> set[str]:
    names = set()
    try:
        for handle in (process / "fd").iterdir():
            try:
                names.add(str(handle.readlink()))
            except OSError:  # closed meanwhile
                continue
    except OSError:  # another person's process, or gone
        return names
    return names
