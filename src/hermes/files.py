"""Files of the home: replaced in one step, for their owner alone."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hermes.errors import HomeError


def replace_file(path: Path, text: str) -> None:
    """Replace a file in one step, readable by its owner alone; a crash leaves the old one or the new one."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise HomeError(f"cannot write {path}: {error.strerror}") from error
