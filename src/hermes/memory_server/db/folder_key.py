"""The secret key of a data folder, created once, in a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

FILE = "tombstones.key"
KEY_BYTES = 32


def folder_key(folder: Path) -> bytes:
    """Return the key of a folder. The first process creates it, atomically."""
    path = folder / FILE
    if not path.exists():
        made = folder / f"{FILE}.{secrets.token_hex(4)}"
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(made, path)
        except FileExistsError:
            pass  # another process was faster
        finally:
            made.unlink()
    return path.read_bytes()
