"""The interface of a database, as the engine uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from sqlalchemy import Connection

if TYPE_CHECKING:
    from hermes.memory_server.db.neighbours import VectorScope

T = TypeVar("T")
Tx: TypeAlias = Connection
"""An open transaction. Functions that take one must have no other side effects, since they may be run again."""

Record: TypeAlias = Any
"""A row from a query, with its columns as attributes."""
JsonMap: TypeAlias = Mapping[str, Any]
"""A JSON object."""


@dataclass(frozen=True, slots=True)
class DatabaseLoad:
    """Counters of one process for a database on a server: its current connections and its repeated transactions."""

    connections_busy: int
    connections_most: int
    conflicts: int
    lost_connections: int


class Database(Protocol):
    """An open database, which other processes may write to. A function that writes what it has read must do both in one
    statement, or lock the rows it reads with `with_for_update(key_share=True)`, so that others can still insert rows
    that refer to them."""

    async def read(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on a consistent, read-only snapshot. A read that takes too long may be stopped."""

    async def write(self, run: Callable[[Tx], T], group: str | None = None) -> T:
        """Run `run` in a transaction and commit it before returning; an error rolls all its changes back. Writes of one
        `group` would wait for each other's locks and may share a transaction."""

    async def empty_log(self) -> None:
        """Empty the write-ahead log, which may still contain deleted text."""

    @property
    def folder(self) -> Path | None:
        """Folder for files derived from the database that survive a restart, or None."""

    def free_bytes(self) -> int | None:
        """Return the free disk space; None if the database is not on this machine."""

    def measure(self) -> DatabaseLoad | None:
        """Return the counters of this process; None if the database is a file."""

    def watch_jobs(self, wake: Callable[[], object]) -> None:
        """Call `wake`, in any thread, when another process queues work, if the database can notify."""

    async def index_vectors(self, scope: VectorScope | None) -> None:
        """Build the vector index of a large scope, and drop the indexes of scopes that no longer exist, if the database
        has vector indexes. It may take long, but does not block reads or writes."""

    def is_replaced(self) -> bool:
        """Return True if the stored database was removed, or replaced by another one."""

    async def close(self) -> None:
        """Finish pending writes, then close. Closing twice is harmless."""
