"""The in-memory indexes of a process, updated from the tables as these grow.

An in-memory index on disk, so that the first search after a start need not read all vectors again.

The file is used only if it is complete, has the same format, is of no later generation than the tables, and ends at a
message that still exists under its public id: a replaced database has other ids, and a restored one is of an earlier
generation. Later changes are followed as usual. The file holds no text, but values computed from texts; a file that
knows of deleted messages is removed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sqlalchemy import bindparam, func, select

from hermes.memory_server.db.catching_up import has_caught_up
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.dialects import neighbour_index
from hermes.memory_server.db.neighbours import VectorScope
from hermes.memory_server.db.scheduling import check_reading, holding
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import message_vectors, messages, peers, workspaces
from hermes.memory_server.engine.departures import departed_since
from hermes.memory_server.engine.memory_index import ARRAYS, NONE, MemoryIndex, OutlineRows, Positions
from hermes.memory_server.engine.near_vectors import StoredSigns, is_indexed, is_large
from hermes.memory_server.engine.postings import Postings

FORMAT_VERSION = 1
HEAD_BYTES = 4096
NAME, UNFINISHED = "outline-", ".outline-"
"""The prefixes of file names: finished, and being written."""
ABANDONED_SECONDS = 60.0
"""The age at which an unfinished file counts as abandoned."""
logger = logging.getLogger(__name__)


def save_memory_index(folder: Path, workspace_id: int, memory_index: MemoryIndex, last_name: str) -> None:
    """Write the file in one step. A failure is logged, and nothing else happens."""
    rows = memory_index.rows()
    arrays = [np.ascontiguousarray(getattr(rows, name)) for name in ARRAYS]
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(array.data)
    head = {
        "format": FORMAT_VERSION,
        "generation": memory_index.generation,
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
        logger.warning("An in-memory index for searches cannot be kept: %s", error)


def load_memory_index(
    folder: Path, workspace_id: int, memory_index: MemoryIndex, generation: int, name_of: Callable[[int], str]
) -> None:
    """Fill an empty in-memory index from its file, if the file exists and is valid for this generation."""
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
        logger.warning("The index of workspace %d is not used and will be made again: %s", workspace_id, error)
        return
    if (
        len(rows)
        and made_at <= generation
        and rows.signs.shape[0] == memory_index.rows().signs.shape[0]
        and (name_of(int(rows.ids[-1])) == head["last_name"])
    ):
        memory_index.restore(rows)
        memory_index.generation = made_at


def discard_memory_index(folder: Path, workspace_id: int) -> None:
    """Delete a workspace's file, if it exists."""
    _remove(_path(folder, workspace_id))


def remove_stale_memory_indexes(
    folder: Path, generations: Mapping[int, int], abandoned: float = ABANDONED_SECONDS
) -> None:
    """Delete the files of workspaces that are gone, files of another generation than their workspace's (rows were
    deleted, or the database was restored from a copy), and files that were left unfinished. `generations` has all
    workspaces.
    """
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        logger.warning("The in-memory indexes in %s cannot be looked through: %s", folder, error)
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


MAX_ROWS_KEPT = 2_000_000
"""The number of rows in memory over all workspaces; those used longest ago are dropped first."""
ROWS_PER_INDEX = 64
"""The number of rows added to the size of each in-memory index, because an empty one takes memory too."""
OUTLINE_BATCH_ROWS = 1000
MAX_SEARCH_READ_ROWS = 20_000
"""The number of new rows that a search reads itself. More are read in the background, and the search uses words
alone.
"""
SAVE_AFTER_ROWS = 20_000
"""The number of new rows after which an in-memory index is written to its file again."""
SAVE_PAUSE_SECONDS = 60.0
"""The time between deleting an index's file and writing it again: messages are often deleted one after another."""
GENERATIONS = PreparedStatement(select(workspaces.c.id, workspaces.c.generation))


def _newer(*names: str) -> PreparedStatement:
    return PreparedStatement(
        select(*(message_vectors.c[name] for name in names))
        .where(message_vectors.c.workspace_id == bindparam("workspace_id"))
        .where(message_vectors.c.message_id > bindparam("last"))
        .order_by(message_vectors.c.message_id, message_vectors.c.piece)
        .limit(OUTLINE_BATCH_ROWS)
    )


WITHOUT_VECTORS = ("message_id", "session_id", "peer_id", "said_at", "traits")
NEWER, NEWER_LEAN = _newer(*WITHOUT_VECTORS, "vector"), _newer(*WITHOUT_VECTORS)
NEWEST = select(func.max(messages.c.id)).where(messages.c.workspace_id == bindparam("workspace_id")).scalar_subquery()
STATE = PreparedStatement(
    select(workspaces.c.generation, NEWEST.label("newest")).where(workspaces.c.id == bindparam("workspace_id"))
)


def count_newer(most: int) -> PreparedStatement:
    """Return the statement that counts a workspace's messages after a given one, up to `most` + 1."""
    some = select(messages.c.id).where(
        messages.c.workspace_id == bindparam("workspace_id"), messages.c.id > bindparam("last")
    )
    return PreparedStatement(select(func.count().label("size")).select_from(some.limit(most + 1).subquery()))


WAITING = count_newer(MAX_SEARCH_READ_ROWS)
AUTHORS = PreparedStatement(
    select(messages.c.id, messages.c.peer_id)
    .select_from(peers.join(messages, messages.c.peer_id == peers.c.id))
    .where(peers.c.workspace_id == bindparam("workspace_id"), messages.c.id <= bindparam("last"))
)
"""Answered from an index alone."""
NAME_OF = PreparedStatement(select(messages.c.public_id).where(messages.c.id == bindparam("id")))


@dataclass(frozen=True, slots=True)
class Seen:
    """A workspace as one transaction sees it. The in-memory index may contain newer messages."""

    postings: Postings
    """Which rows hold which words. They may include rows that are newer than `rows`."""
    rows: OutlineRows
    newest: int
    """The newest message that the transaction sees."""
    ends: Mapping[int, int]
    """The last row of each session, which may be newer than `rows`."""

    def sizes(self, sessions: Positions) -> Positions:
        """Return the number of messages of each session; each must have rows."""
        ends = [self._end(session) for session in sessions.tolist()]
        return self.rows.numbers[ends].astype(np.int64) if ends else np.zeros(0, dtype=np.int64)

    def _end(self, session: int) -> int:
        end = self.ends[session]
        return end if end < len(self.rows) else int(np.flatnonzero(self.rows.sessions == session)[-1])


@dataclass(slots=True)
class KnownWorkspace:
    memory_index: MemoryIndex
    postings: Postings


class MemoryIndexes:
    """The in-memory indexes and postings of one process, by workspace. Thread-safe."""

    def __init__(self, dimension: int, *, folder: Path | None = None, rows_kept: int = MAX_ROWS_KEPT) -> None:
        """With a folder, large in-memory indexes are saved there between starts."""
        self.load_later: Callable[[int], object] | None = None
        """Called with a workspace whose in-memory index should be loaded; if None, the search itself loads it."""
        self.index_later: Callable[[VectorScope], object] = lambda _scope: None
        """Called with a large workspace whose vectors are in memory."""
        self._dimension = dimension
        self._folder = folder
        self._rows_kept = rows_kept
        self._caught_up = False
        self._guard = threading.Lock()
        self._known: OrderedDict[int, KnownWorkspace] = OrderedDict()

    def find(self, tx: Tx, workspace_id: int) -> Seen | None:
        """Return the workspace's messages; None while they are loaded for the first time, or while a folder of an
        earlier version catches up.
        """
        if not self._caught_up:
            if not has_caught_up(tx):
                return None
            self._caught_up = True
        memory_index = self._of(workspace_id).memory_index
        if not memory_index.is_whole and self.load_later is not None:
            if memory_index.guard.locked():
                return None
            if self._is_far_behind(tx, memory_index, workspace_id):
                self.load_later(workspace_id)
                return None
        return self.load(tx, workspace_id)

    def load(self, tx: Tx, workspace_id: int) -> Seen:
        """Return the workspace's messages after reading the new ones."""
        known = self._of(workspace_id)
        memory_index = known.memory_index
        generation, newest = _state_of(tx, workspace_id)
        with holding(memory_index.guard):
            if memory_index.generation == NONE:
                self._restore(tx, memory_index, workspace_id, generation)
            if generation < memory_index.generation:
                # An older snapshot still sees dropped messages: it uses the in-memory index and adds nothing.
                return Seen(
                    Postings(),
                    _rows(tx, memory_index, workspace_id),
                    min(newest, memory_index.last_id),
                    memory_index.ends,
                )
            if memory_index.generation < generation:
                known.postings = _leave_out(tx, known, workspace_id, generation)
                memory_index.generation = generation
                self._discard(memory_index, workspace_id)
            if memory_index.last_id < newest:
                _follow(tx, memory_index, workspace_id)
            memory_index.is_whole = True
            self._save(tx, memory_index, workspace_id)
            if is_large(memory_index.count) and not memory_index.is_lean:
                self.index_later(VectorScope("messages", workspace_id))
            return Seen(known.postings, _rows(tx, memory_index, workspace_id), newest, memory_index.ends)

    def _save(self, tx: Tx, memory_index: MemoryIndex, workspace_id: int) -> None:
        is_due = memory_index.on_disk or time.monotonic() - memory_index.saved_at >= SAVE_PAUSE_SECONDS
        if memory_index.count - memory_index.on_disk >= SAVE_AFTER_ROWS and is_due and self._folder is not None:
            save_memory_index(self._folder, workspace_id, memory_index, _name_of(tx, memory_index.last_id))
            memory_index.on_disk, memory_index.saved_at = memory_index.count, time.monotonic()

    def _discard(self, memory_index: MemoryIndex, workspace_id: int) -> None:
        """Delete the in-memory index's file, which contains dropped messages."""
        if self._folder is not None:
            discard_memory_index(self._folder, workspace_id)
            memory_index.on_disk = 0

    def _is_far_behind(self, tx: Tx, memory_index: MemoryIndex, workspace_id: int) -> bool:
        with holding(memory_index.guard):
            if memory_index.generation == NONE:
                self._restore(tx, memory_index, workspace_id, _state_of(tx, workspace_id)[0])
            return (
                int(WAITING.rows(tx, workspace_id=workspace_id, last=memory_index.last_id)[0].size)
                > MAX_SEARCH_READ_ROWS
            )

    def _restore(self, tx: Tx, memory_index: MemoryIndex, workspace_id: int, generation: int) -> None:
        if self._folder is not None:
            load_memory_index(self._folder, workspace_id, memory_index, generation, lambda last: _name_of(tx, last))
        elif not memory_index.count and is_indexed(tx, VectorScope("messages", workspace_id)):
            memory_index.make_lean()

    def _of(self, workspace_id: int) -> KnownWorkspace:
        with self._guard:
            known = self._known.get(workspace_id)
            if known is not None:
                self._known.move_to_end(workspace_id)
                return known
            while (
                self._known
                and sum(ROWS_PER_INDEX + k.memory_index.count for k in self._known.values()) > self._rows_kept
            ):
                self._known.popitem(last=False)
            return self._known.setdefault(workspace_id, KnownWorkspace(MemoryIndex(self._dimension), Postings()))


async def clean_memory_indexes(database: Database, abandoned: float = ABANDONED_SECONDS) -> None:
    """Delete in-memory index files that contain deleted messages, and those that were never finished."""
    if (folder := database.folder) is not None:
        generations = await database.read(lambda tx: {row.id: row.generation for row in GENERATIONS.rows(tx)})
        await asyncio.to_thread(remove_stale_memory_indexes, folder, generations, abandoned)


def _leave_out(tx: Tx, known: KnownWorkspace, workspace_id: int, generation: int) -> Postings:
    """Drop messages that disappeared from the tables, and update changed authors. Return the postings of the rest."""
    memory_index = known.memory_index
    if not memory_index.count:
        return Postings()
    gone = departed_since(tx, workspace_id, memory_index.generation, generation)
    if gone is not None:
        return known.postings.moved(memory_index.leave_out(gone))
    memory_index.keep(dict(map(tuple, AUTHORS.rows(tx, workspace_id=workspace_id, last=memory_index.last_id))))
    return Postings()


def _follow(tx: Tx, memory_index: MemoryIndex, workspace_id: int) -> None:
    """Read the rows that are newer than the outline."""
    newer = NEWER_LEAN if memory_index.is_lean else NEWER
    while rows := newer.rows(tx, workspace_id=workspace_id, last=memory_index.last_id):
        is_last = len(rows) < OUTLINE_BATCH_ROWS
        if not is_last and rows[0][0] != rows[-1][0]:
            # The last message may have more pieces: the next batch reads it whole.
            rows = [row for row in rows if row[0] != rows[-1][0]]
        memory_index.add(rows)
        if is_last:
            return
        check_reading()


def _rows(tx: Tx, memory_index: MemoryIndex, workspace_id: int) -> OutlineRows:
    """Return the rows of an in-memory index, with access to signs that it does not hold."""
    index = neighbour_index(tx) if memory_index.is_lean else None
    return (
        memory_index.rows()
        if index is None
        else replace(memory_index.rows(), source=StoredSigns(tx, workspace_id, index))
    )


def _state_of(tx: Tx, workspace_id: int) -> tuple[int, int]:
    """Return the generation of a workspace and its newest message id; 0 for a missing one."""
    state = STATE.first(tx, workspace_id=workspace_id)
    return (0, 0) if state is None else (int(state.generation), int(state.newest or 0))


def _name_of(tx: Tx, message_id: int) -> str:
    found = NAME_OF.first(tx, id=message_id)
    return "" if found is None else str(found.public_id)
