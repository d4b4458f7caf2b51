"""An outline on disk, so that the first search after a start need not read all vectors again.

The file is used only if it is complete, has the same format, is of no later generation than the tables, and ends at a
message that still exists under its public id: a replaced database has other ids, and a restored one is of an earlier
generation. Later changes are followed as usual. The file holds no text, but values computed from texts; a file that
knows of deleted messages is removed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from hermes.memory_server.engine.outline import ARRAYS, Outline, OutlineRows

FORMAT_VERSION = 1
HEAD_BYTES = 4096
NAME, UNFINISHED = "outline-", ".outline-"
"""The prefixes of file names: finished, and being written."""
ABANDONED_SECONDS = 60.0
"""The age at which an unfinished file counts as abandoned."""
logger = logging.getLogger(__name__)


def save_outline(folder: Path, workspace_id: int, outline: Outline, last_name: str) -> None:
    """Write the file in one step. A failure is logged, and nothing else happens."""
    rows = outline.rows()
    arrays = [np.ascontiguousarray(getattr(rows, name)) for name in ARRAYS]
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(array.data)
    head = {
        "format": FORMAT_VERSION,
        "generation": outline.generation,
        "last_name": last_name,
        "arrays": [[array.dtype.str, *array.shape] for array in arrays],
        "digest": digest.hexdigest(),
    }
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=UNFINISHED, delete=False) as file:
            file.write(json.dumps(head).encode().ljust(HEAD_BYTES - 1) + b"\n")
            for array in arrays:
                file.write(array.data)
        Path(file.name).replace(_path(folder, workspace_id))
    except OSError as error:
        logger.warning("An outline for searches cannot be kept: %s", error)


def load_outline(
    folder: Path, workspace_id: int, outline: Outline, generation: int, name_of: Callable[[int], str]
) -> None:
    """Fill an empty outline from its file, if the file exists and is valid for this generation."""
    try:
        content = _path(folder, workspace_id).read_bytes()
        head = json.loads(content[:HEAD_BYTES])
        body = memoryview(content)[HEAD_BYTES:]
        if head["format"] != FORMAT_VERSION or hashlib.blake2b(body, digest_size=16).hexdigest() != head["digest"]:
            return
        rows, made_at = _stored_rows(body, head["arrays"]), int(head["generation"])
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("The outline of workspace %d is not used and will be made again: %s", workspace_id, error)
        return
    if (
        len(rows)
        and made_at <= generation
        and rows.signs.shape[0] == outline.rows().signs.shape[0]
        and (name_of(int(rows.ids[-1])) == head["last_name"])
    ):
        outline.restore(rows)
        outline.generation = made_at


def discard_outline(folder: Path, workspace_id: int) -> None:
    """Delete a workspace's file, if it exists."""
    _remove(_path(folder, workspace_id))


def remove_stale_outlines(folder: Path, generations: Mapping[int, int], abandoned: float = ABANDONED_SECONDS) -> None:
    """Delete the files of workspaces that are gone, files of another generation than their workspace's (rows were
    deleted, or the database was restored from a copy), and files that were left unfinished. `generations` has all
    workspaces.
    """
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        logger.warning("The outlines in %s cannot be looked through: %s", folder, error)
        return
    for name in names:
        workspace = name.removeprefix(NAME)
        if name.startswith(UNFINISHED) and time.time() - _written_at(folder / name) >= abandoned:
            _remove(folder / name)
        elif workspace == name or not workspace.isdecimal():
            continue  # not ours
        elif _generation(folder / name) != generations.get(int(workspace)):
            _remove(folder / name)


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()  # it was just finished


def _generation(path: Path) -> int:
    """Return the generation of a file; -1, which no workspace has, if the file states none."""
    try:
        with path.open("rb") as file:
            return int(json.loads(file.read(HEAD_BYTES))["generation"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s cannot be removed: %s", path, error)


def _stored_rows(body: memoryview, shapes: list[list[int | str]]) -> OutlineRows:
    arrays = []
    start = 0
    for kind, *shape in shapes:
        size = int(np.dtype(str(kind)).itemsize * np.prod([int(length) for length in shape]))
        part = np.frombuffer(body[start : start + size], dtype=str(kind))
        arrays.append(part.reshape([int(length) for length in shape]).copy())
        start += size
    return OutlineRows(*arrays)


def _path(folder: Path, workspace_id: int) -> Path:
    return folder / f"{NAME}{workspace_id}"
