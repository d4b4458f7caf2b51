"""The server's health: its file, its background work and how far that is behind. A failure is remembered until a check
succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import bindparam, exists, func, select, text

from hermes.clock import Clock
from hermes.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreGoneError,
    StoreMovedError,
    StoreReadOnlyError,
    StoreStoppedError,
    StoreUnreachableError,
)
from hermes.memory_server import times
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.dialects import find_damage
from hermes.memory_server.db.statements import PreparedStatement, upsert
from hermes.memory_server.db.tables import OPEN_JOB, jobs, message_vectors, messages, meta, metadata
from hermes.memory_server.engine.embedding import Refinement
from hermes.memory_server.engine.finer import count_behind, count_refused
from hermes.memory_server.engine.job_kinds import PAYLOADS, PROMISED
from hermes.memory_server.engine.jobs import DEFERRED_PREFIX, has_work
from hermes.memory_server.engine.rereading import read_counts
from hermes.memory_server.model.calls import count_by_purpose, day_of

log = logging.getLogger(__name__)
OK = "ok"
CACHE_SECONDS = 1.0
"""How long a result is used before the file is checked again."""
STALE_SECONDS, CHECK_WAIT_SECONDS = 10.0, 1.0
"""An older result is not used: the caller waits for the next check, but not long."""
MIN_FREE_BYTES = 8 * 1024 * 1024
"""The free disk space below which the disk counts as full: a write also writes the log."""
WRITE_CHECK_SECONDS = 10.0
"""If no write is known to have succeeded for this long, a check writes itself."""
NAMES: dict[type[StoreError], str] = {
    StoreBusyError: "locked",
    StoreDamagedError: "damaged",
    StoreFullError: "full",
    StoreGoneError: "gone",
    StoreMovedError: "moved",
    StoreReadOnlyError: "read-only",
    StoreUnreachableError: "unreachable",
}
LASTING = ("damaged", "gone")
"""Failures that a later success does not disprove: one readable page says nothing about the others."""
MAX_COUNTED_JOBS = 10_000
"""Jobs are counted up to this number."""
MAX_CHECKED_MESSAGES = 100
"""The number of newest messages that are checked."""
MAX_CHECKED_JOBS = 1000
"""The number of oldest jobs of a kind that are checked."""

WAITING = select(jobs.c.id).where(text(OPEN_JOB))
ALL = PreparedStatement(select(func.count().label("number")).select_from(WAITING.limit(MAX_COUNTED_JOBS).subquery()))
OPEN = select(jobs).where(jobs.c.kind == bindparam("kind"), text(OPEN_JOB)).order_by(jobs.c.id)
OLDEST = PreparedStatement(OPEN.with_only_columns(jobs.c.created_at).limit(1))
TRIED = OPEN.with_only_columns(jobs.c.attempts, jobs.c.error).limit(MAX_CHECKED_JOBS).subquery()
TRIES = PreparedStatement(
    select(func.max(TRIED.c.attempts).label("number"), func.max(TRIED.c.error).label("reason")).where(
        TRIED.c.error.is_not(None), ~TRIED.c.error.startswith(DEFERRED_PREFIX)
    )
)
WAITS = PreparedStatement(
    select(func.count().label("number")).select_from(TRIED).where(TRIED.c.error.startswith(DEFERRED_PREFIX))
)
"""The number of jobs waiting for a model, among the oldest open jobs of a kind."""
"""`TRIES`: the highest number of attempts, and a reason, among the oldest open jobs of a kind that failed."""
SOON_MICROSECONDS = 60_000_000
NEW = (
    select(messages.c.id, messages.c.workspace_id).order_by(messages.c.id.desc()).limit(MAX_CHECKED_MESSAGES).subquery()
)
UNFINDABLE = PreparedStatement(
    select(func.count().label("number"))
    .select_from(NEW)
    .where(
        ~exists().where(message_vectors.c.workspace_id == NEW.c.workspace_id, message_vectors.c.message_id == NEW.c.id)
    )
)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of background work. `oldest` is an age in seconds, 0 if nothing waits. `retried` has the number of
    attempts of each kind of promised work that failed, and `reasons` the class of the error; anybody may read
    these, so they quote nothing.
    """

    waiting: int = 0
    oldest: float = 0.0
    unfindable: int = 0
    retried: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


class ServerHealth:
    """The health of one open database."""

    def __init__(self, database: Database, clock: Clock, refinement: Refinement | None = None) -> None:
        self.refinement = refinement
        """The second embedder."""
        self.without_finer: int | None = None
        """The number of messages waiting for a second-stage vector, up to 10,000; None while unknown."""
        self.refused_by_finer: int | None = None
        """The number of messages that get none, because the embedder refused them repeatedly."""
        self._database = database
        self._clock = clock
        self._status = OK
        self._looked = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._wrote = float("-inf")
        self.backlog = Backlog()
        self.model_calls: Mapping[str, Mapping[str, int]] = {}
        """Model requests of this day (UTC) by purpose: calls, failures, tokens, milliseconds."""
        self.deferred: Mapping[str, int] = {}
        """Jobs that wait for a model, by kind."""
        self.rereading: dict[str, int] = {}
        """The counts of messages and conclusions of an earlier version that were read again or still are to be."""
        self.free_bytes: int | None = 0

    def note(self, error: StoreError) -> None:
        """Note an error of the file."""
        self._become(NAMES.get(type(error), self._status))

    def wrote(self) -> None:
        """Note that a write succeeded."""
        self._wrote = self._clock.now()

    async def status(self) -> str:
        """Return `ok`, or the file's failure: one of `NAMES`. Only the first caller, or one after a long pause,
        waits.
        """
        age = abs(self._clock.now() - self._looked)
        if age >= STALE_SECONDS:
            self.without_finer = self.refused_by_finer = None
        if age >= CACHE_SECONDS and (self._looking is None or self._looking.done()):
            self._looked = self._clock.now()
            self._looking = asyncio.create_task(self._look())
        if age >= STALE_SECONDS and self._looking is not None:
            await asyncio.wait([self._looking], timeout=CHECK_WAIT_SECONDS if age < float("inf") else None)
        return self._status

    async def inspect(self) -> None:
        """Check every page of the file, as far as time allows. Run in the background."""
        try:
            damage = await self._database.read(find_damage)
        except StoreStoppedError:
            return
        except StoreError as error:
            self.note(error)
            return
        if damage is not None:
            log.error("memory server: the file is damaged: %s", damage)
            self._become(NAMES[StoreDamagedError])

    def _is_to_be_tried(self) -> bool:
        """Return True if a trial write would give new information. A damaged file is never written for that."""
        unknown = self._status != OK or abs(self._clock.now() - self._wrote) >= WRITE_CHECK_SECONDS
        return unknown and self._status not in LASTING

    def _become(self, status: str) -> None:
        if self._status not in LASTING:
            self._status = status

    async def close(self) -> None:
        """Wait for a running check; call it before the database is closed."""
        if self._looking is not None:
            await self._looking

    async def _look(self) -> None:
        """Check each table, the backlog and the disk; after a failure, or without other writes, write as
        well.
        """
        try:
            self.free_bytes = self._database.free_bytes()
            self.backlog = await self._database.read(partial(_look_around, at=times.now(self._clock)))
            self.rereading = await self._database.read(read_counts)
            self.model_calls, self.deferred = await self._database.read(partial(_model_work, at=times.now(self._clock)))
            if self.refinement is not None and (space := self.refinement.space) is not None:
                counts = await self._database.read(lambda tx: (count_behind(tx, space), count_refused(tx)))
                self.without_finer, self.refused_by_finer = counts
            if self.free_bytes is not None and self.free_bytes < MIN_FREE_BYTES:
                self._become(NAMES[StoreFullError])
            elif self._is_to_be_tried():
                await self._database.write(_write)
                self.wrote()
                self._become(OK)
        except StoreError as error:
            self.note(error)
        except OSError as error:  # the folder is gone
            log.error("memory server: %s", error)
            self._become(NAMES[StoreGoneError])


def _look_around(tx: Tx, at: int) -> Backlog:
    """Read the first row of each table and the backlog: a few index probes, however many rows there are."""
    for table in metadata.sorted_tables:
        tx.execute(select(*table.primary_key).limit(1)).first()
    [(waiting,)] = ALL.rows(tx)
    firsts = [found.created_at for kind in PAYLOADS if (found := OLDEST.first(tx, kind=kind)) is not None]
    [(unfindable,)] = UNFINDABLE.rows(tx)
    failed = {kind: row for kind in PROMISED if (row := TRIES.rows(tx, kind=kind)[0]).number is not None}
    retried: dict[str, int] = {kind: row.number for kind, row in failed.items()}
    reasons: dict[str, str] = {kind: row.reason.partition(":")[0] for kind, row in failed.items()}
    return Backlog(waiting, max(0.0, (at - min(firsts, default=at)) / 1e6), unfindable, retried, reasons)


def _model_work(tx: Tx, at: int) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Return today's model requests by purpose, and the jobs that wait for a model by kind."""
    asked = {
        row.purpose: {
            "calls": row.calls,
            "failures": row.failures,
            "tokens": row.prompt_tokens + row.completion_tokens,
            "milliseconds": row.milliseconds,
        }
        for row in count_by_purpose(tx, day_of(at))
    }
    waiting: dict[str, int] = {kind: n for kind in PROMISED if (n := WAITS.rows(tx, kind=kind)[0].number)}
    return asked, waiting


def _write(tx: Tx) -> None:
    upsert(tx, meta, ("name",), {"name": "health", "value": OK})


def has_work_soon(tx: Tx, at: int) -> bool:
    """Return True if a job runs or can begin within a minute. Jobs that wait longer after failures run after the next
    start.
    """
    return any(has_work(tx, kind, at + SOON_MICROSECONDS) for kind in PAYLOADS)
