"""What the engine sees of a database, whichever it is."""

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
"""An open transaction. Functions that take one must have no effect outside it, since they may be run again."""

Record: TypeAlias = Any
"""A row that was read: its columns are attributes."""
JsonMap: TypeAlias = Mapping[str, Any]
"""A JSON object."""


@dataclass(frozen=True, slots=True)
class DatabaseLoad:
    """What a process counts of a database on a server: its connections now, and transactions that were run again."""

    connections_busy: int
    connections_most: int
    conflicts: int
    lost_connections: int


class Database(Protocol):
    """An open database. Others may write to it at the same time: a function that writes what it read before either
    does both in one statement, or locks what it reads: `with_for_update(key_share=True)`, which lets others add rows
    that refer to it."""

    async def read(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on one consistent snapshot. It cannot write. One that takes too long may be stopped."""

    async def write(self, run: Callable[[Tx], T]) -> T:
        """Run `run` in a transaction of its own: all of it is kept, or nothing. When this returns, it is committed."""

    async def empty_log(self) -> None:
        """Let go of what the database keeps of earlier writes for a restart, where deleted text may still stand."""

    @property
    def folder(self) -> Path | None:
        """Where what was worked out of it may be kept from one start to the next; None for nowhere."""

    def free_bytes(self) -> int | None:
        """How much more the disk takes; None where the database is elsewhere."""

    def measure(self) -> DatabaseLoad | None:
        """Return what this process counts; None where the database is a file."""

    def watch_jobs(self, wake: Callable[[], object]) -> None:
        """Have `wake` called, in any thread, when another process queued work, where the database can tell."""

    async def index_vectors(self, scope: VectorScope | None) -> None:
        """Index the vectors of a large scope, and drop such indexes of scopes that are gone, where the database has
        any. It takes long and holds up nobody."""

    def is_replaced(self) -> bool:
        """Return True if what is stored under its name is another database by now, or none."""

    async def close(self) -> None:
        """Finish every write that was begun, then close. Closing twice is fine."""
