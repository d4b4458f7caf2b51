"""Files of the home: replaced in one step, for their owner alone."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hermes.errors import HomeError


def replace_file(path: Path, text: str) -> None:
    """Replace a file in one step, readable by its owner alone; a crash leaves the old one or the new one.

    A link stays a link: what it points to is replaced.
    """
    try:
        target = path.resolve() if path.is_symlink() else path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that point at each other
        raise HomeError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error


def _sync_folder(folder: Path) -> None:
    """Bring the new name to the disk, where the system lets one open a folder."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
