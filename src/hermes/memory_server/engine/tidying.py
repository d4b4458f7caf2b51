"""What is left of deleted text after its rows: words in the text index, outline files, and the database's log.

index, begun anew ── index, part by part ── log
"""

from __future__ import annotations

import json

from sqlalchemy import select, text

from hermes.memory_server.db.database import Database, JsonMap, Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.tables import OPEN_JOB, jobs
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.outlines import clean_outlines

TIDY = "tidy"
BEGIN, GO_ON = {"begin": True}, {"begin": False}
LOG = {"begin": False, "log": True}


def queue_tidying(tx: Tx, at: int) -> None:
    """Messages were deleted: queue the tidying of all that may still hold something of them."""
    _queue(tx, BEGIN, at)


def queue_log_tidying(tx: Tx, at: int) -> None:
    """Rows were deleted that no index holds: queue the tidying of the log alone."""
    _queue(tx, LOG, at)


def _queue(tx: Tx, payload: JsonMap, at: int) -> None:
    # One that is under way does not know of the newest deletion.
    waiting = select(jobs.c.id).where(
        jobs.c.unit == TIDY, text(OPEN_JOB), jobs.c.state == "pending", jobs.c.payload == json.dumps(payload)
    )
    if tx.execute(waiting.limit(1)).first() is None:
        add_job(tx, "tidy", TIDY, at, 0, payload)


async def tidy_files(database: Database, payload: JsonMap) -> None:
    """What a job tidies beside the tables."""
    if payload.get("log", False):
        await database.empty_log()
    elif payload.get("begin", True):
        await clean_outlines(database)
        await database.index_vectors(None)


def tidy_index(tx: Tx, payload: JsonMap, at: int) -> None:
    """Tidy a part of the text index, and queue what follows."""
    if payload.get("log", False):
        return
    # Jobs of earlier versions say it in other words; to begin anew is never wrong.
    is_more = text_index(tx).tidy(tx, begin=payload.get("begin", True))
    add_job(tx, "tidy", TIDY, at, 0, GO_ON if is_more else LOG)
