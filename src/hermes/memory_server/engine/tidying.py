"""Tidying after deletions: words in the text index, index files, and the database's log may still hold deleted text.

index, from the beginning ── index, part by part ── log
"""

from __future__ import annotations

from sqlalchemy import select, text

from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.tables import OPEN_JOB, jobs
from hermes.memory_server.engine.job_kinds import TidyingJob, write_payload
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.memory_indexes import clean_memory_indexes

TIDY = TidyingJob.kind
BEGIN, GO_ON, LOG = TidyingJob(), TidyingJob(begin=False), TidyingJob(begin=False, log=True)


def queue_tidying(tx: Tx, at: int) -> None:
    """Queue the tidying of everything that may still hold text of deleted messages."""
    _queue(tx, BEGIN, at)


def queue_log_tidying(tx: Tx, at: int) -> None:
    """Queue the tidying of the log alone, after deleting rows that no index holds."""
    _queue(tx, LOG, at)


def _queue(tx: Tx, what: TidyingJob, at: int) -> None:
    # A running job may have missed the newest deletion.
    waiting = select(jobs.c.id).where(
        jobs.c.unit == TIDY, text(OPEN_JOB), jobs.c.state == "pending", jobs.c.payload == write_payload(what)
    )
    if tx.execute(waiting.limit(1)).first() is None:
        add_job(tx, what, TIDY, at, 0)


async def tidy_files(database: Database, what: TidyingJob) -> None:
    """Tidy the files beside the tables."""
    if what.log:
        await database.empty_log()
    elif what.begin:
        await clean_memory_indexes(database)
        await database.index_vectors(None)


def tidy_index(tx: Tx, what: TidyingJob, at: int) -> None:
    """Tidy a part of the text index, and queue the next step."""
    if what.log:
        return
    is_more = text_index(tx).tidy(tx, begin=what.begin)
    add_job(tx, GO_ON if is_more else LOG, TIDY, at, 0)
