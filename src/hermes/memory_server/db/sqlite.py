"""A database in one SQLite file. A transaction is a connection of SQLAlchemy.

SQL functions for SQLite: the conditions that `matching` describes, and the indexed form of a text.

The secret key of a data folder, created once, in a file that only its owner can read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import shutil
import sqlite3
import unicodedata
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy import Engine, ExceptionContext, create_engine, event
from sqlalchemy.pool import NullPool

from hermes.errors import StoreError
from hermes.memory_server.db.database import DatabaseLoad, Tx
from hermes.memory_server.db.matching import ORDERED
from hermes.memory_server.db.neighbours import VectorScope
from hermes.memory_server.engine.sentences import message_traits
from hermes.ranking.words import segment
from hermes.sqlite.connection import Opened, connect, translate
from hermes.sqlite.database import SqliteDatabase, Synchronous, accept
from hermes.sqlite.reading import ReadLane

T = TypeVar("T")


def register_functions(connection: sqlite3.Connection) -> None:
    [(_, _, file), *_] = connection.execute("PRAGMA database_list").fetchall()
    connection.create_function("holds_text", 2, holds_text, deterministic=True)
    connection.create_function("holds_json", 2, holds_json, deterministic=True)
    connection.create_function("compares_json", 4, compares_json, deterministic=True)
    connection.create_function("holds_any", 2, holds_any, deterministic=True)
    connection.create_function("segmented", 1, segment, deterministic=True)
    connection.create_function("traits_of", 1, message_traits, deterministic=True)
    connection.create_function("keyed_hash", 1, partial(keyed_hash, Path(file).parent))


def keyed_hash(folder: Path, text: str) -> str:
    """Return a hash with the folder's key: without the key, nobody can test guessed texts."""
    return hmac.new(folder_key(folder), text.encode(), hashlib.sha256).hexdigest()


def holds_text(text: str | None, part: str) -> int | None:
    return None if text is None else int(_fold(part) in _spelled(text))


def holds_json(document: str | None, pattern: str) -> int | None:
    return None if document is None else int(_holds(_document(document), _load(pattern)))


def compares_json(document: str | None, key: str, op: str, operand: str) -> int | None:
    if document is None:
        return None
    value = _document(document).get(key)
    wanted = _load(operand)
    if op == "ne":
        return int(not _equal(value, wanted))
    if value is None:
        return None
    if op == "in":
        return int(_as_text(value) in {_as_text(item) for item in wanted})
    if op == "contains" and isinstance(value, (dict, list)):
        return int(_holds(value, wanted))
    if op in ("contains", "icontains"):
        return int(_as_text(wanted).casefold() in _as_text(value).casefold())
    return _in_order(value, op, wanted)


def holds_any(document: str | None, values: str) -> int | None:
    return None if document is None else int(not set(_load(values)).isdisjoint(_document(document)))


def _equal(value: Any, wanted: Any) -> bool:
    numbers = _as_number(value), _as_number(wanted)
    return _as_text(value) == _as_text(wanted) or (numbers[0] is not None and numbers[0] == numbers[1])


def _in_order(value: Any, op: str, wanted: Any) -> int | None:
    limit = _as_number(wanted)
    if limit is None:
        return int(ORDERED[op](_as_text(value), _as_text(wanted)))
    number = _as_number(value)
    return None if number is None else int(ORDERED[op](number, limit))


def _as_number(value: Any) -> float | int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _holds(value: Any, pattern: Any) -> bool:
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(k in value and _holds(value[k], v) for k, v in pattern.items())
    if isinstance(pattern, list):
        return isinstance(value, list) and all(any(_holds(item, wanted) for item in value) for wanted in pattern)
    if isinstance(value, list):
        return any(_same(item, pattern) for item in value)
    return _same(value, pattern)


def _same(value: Any, pattern: Any) -> bool:
    return isinstance(value, bool) == isinstance(pattern, bool) and bool(value == pattern)


@lru_cache(maxsize=256)
def _load(text: str) -> Any:
    return json.loads(text)


@lru_cache(maxsize=8)
def _document(text: str) -> Any:
    """Parse a document. The cache serves the conditions of one filter; it is small, since documents may be large."""
    return json.loads(text)


@lru_cache(maxsize=16)
def _fold(text: str) -> str:
    return _spelled(text)


def _spelled(text: str) -> str:
    """Return a text without differences of case or of Unicode normalization."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


LANES = (
    ReadLane(threads=1, seconds=0.01, together=0.002),
    ReadLane(threads=1, seconds=0.1),
    ReadLane(threads=1, seconds=0.5),
    ReadLane(threads=1),
)
"""Most reads take a few milliseconds, and one thread runs them all: several threads compete for the interpreter lock,
and together are a third slower than one."""
LOG_BYTES = 4 * 1024 * 1024
"""Size to which the write-ahead log is truncated after a burst of writes."""


class SqliteFile(SqliteDatabase[Tx]):
    """An open file, shared with other processes."""

    def __init__(
        self,
        path: Path,
        *,
        lock_timeout: float = 30.0,
        synchronous: Synchronous = "FULL",
        read_seconds: float | None = None,
        prepare: Callable[[Tx], None] = accept,
    ) -> None:
        """Open or create a file; `prepare` is the first write. A read takes at most `read_seconds`."""
        engine = create_file_engine(path)
        super().__init__(
            path,
            lambda: _connect(engine),
            lock_timeout=lock_timeout,
            lanes=LANES,
            read_seconds=read_seconds,
            synchronous=synchronous,
            pragmas=(f"journal_size_limit = {LOG_BYTES}",),
            prepare=prepare,
        )

    async def write(self, run: Callable[[Tx], T], group: str | None = None) -> T:  # noqa: ARG002
        """All writes that wait at the same moment share a transaction, whatever their group."""
        return await super().write(run)

    @property
    def folder(self) -> Path | None:
        return self.path.parent

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.path.parent).free

    def measure(self) -> DatabaseLoad | None:
        return None

    def watch_jobs(self, wake: Callable[[], object]) -> None:
        """Do nothing: a file cannot notify. Workers poll for work."""

    async def index_vectors(self, scope: VectorScope | None) -> None:
        """Do nothing: every vector in a file is compared."""


def driver(tx: Tx) -> sqlite3.Connection:
    """Return the driver's connection of a transaction."""
    raw: Any = tx.connection.dbapi_connection
    return cast("sqlite3.Connection", raw)


def create_file_engine(path: Path) -> Engine:
    """Return an engine that connects to a file and raises our errors."""
    engine = create_engine(
        "sqlite://", creator=lambda: _connection(path), poolclass=NullPool, isolation_level="AUTOCOMMIT"
    )

    def translated(context: ExceptionContext) -> StoreError | None:
        """Convert an error of SQLite inside SQLAlchemy, as for a direct call of the driver."""
        cause = context.original_exception
        return translate(cause, path) if isinstance(cause, sqlite3.Error) else None

    event.listen(engine, "handle_error", translated, retval=True)
    return engine


def _connection(path: Path) -> sqlite3.Connection:
    connection = connect(path)
    connection.execute("PRAGMA foreign_keys = OFF")
    register_functions(connection)
    return connection


def _connect(engine: Engine) -> Opened[Tx]:
    tx = engine.connect()
    return Opened(driver(tx), tx)


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
