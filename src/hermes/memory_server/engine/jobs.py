"""Background work as rows. A job is written in the transaction of what caused it: neither is there without the other.

    pending ── claim (lease) ── running ── finish ── done
       └──────── retry, later ─────┘  └── too often ── failed

Jobs of one unit run one after another. A lease that ran out can be taken over; its old owner cannot finish any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, bindparam, delete, exists, or_, select, text, update

from hermes.memory_server.db.engine import Tx
from hermes.memory_server.db.statements import Prepared, inserting
from hermes.memory_server.db.tables import OPEN_JOB, job_observers, jobs

LEASE = 10_000_000
"""Microseconds that a claimed job is its owner's, unless it is renewed: how long the work of a killed worker waits."""
ATTEMPTS = 5
BACK_OFF = 2_000_000
"""Microseconds before the second try; doubled for each further one."""
KEEP_DONE = 24 * 3600 * 1_000_000
KEEP_FAILED = 30 * KEEP_DONE
TRACKED = ("representation", "summary", "dream")
"""The kinds that queue status speaks of."""


def _claimable() -> Select[Any]:
    other = jobs.alias("other")
    earlier = exists().where(other.c.unit == jobs.c.unit, other.c.id < jobs.c.id, text(f"other.{OPEN_JOB}"))
    free = or_(
        (jobs.c.state == "pending") & (jobs.c.not_before <= bindparam("at")),
        (jobs.c.state == "running") & (jobs.c.lease_until < bindparam("at")),
    )
    return select(jobs).where(text(f"jobs.{OPEN_JOB}"), free, ~earlier).order_by(jobs.c.id).limit(1)


MINE = (
    jobs.c.id == bindparam("job_id"),
    jobs.c.owner == bindparam("owned_by"),
    jobs.c.attempts == bindparam("attempt"),
    jobs.c.state == "running",
)
"""The job as long as nobody took it over."""
INSERT = Prepared(inserting(jobs, "kind", "unit", "workspace_id", "session_id", "sender_id", "payload", "created_at"))
INSERT_OBSERVERS = Prepared(inserting(job_observers))
CLAIMABLE = Prepared(_claimable())
CLAIM = Prepared(
    update(jobs)
    .where(jobs.c.id == bindparam("job_id"))
    .values(
        state="running",
        owner=bindparam("owner"),
        lease_until=bindparam("lease_until"),
        attempts=bindparam("attempts"),
    )
)
FINISH = Prepared(
    update(jobs).where(*MINE).values(state="done", finished_at=bindparam("finished_at"), error=bindparam("error"))
)


@dataclass(frozen=True, slots=True)
class Job:
    """A piece of work that this owner may do now."""

    id: int
    kind: str
    unit: str
    workspace_id: int
    session_id: int | None
    payload: Mapping[str, Any]
    attempts: int
    owner: str


def add_job(
    tx: Tx,
    kind: str,
    unit: str,
    at: int,
    *,
    workspace_id: int,
    payload: Mapping[str, Any],
    session_id: int | None = None,
    sender_id: int | None = None,
    observers: Iterable[int] = (),
) -> None:
    """Queue work; it is done some time after this transaction commits."""
    values: dict[str, Any] = {"kind": kind, "unit": unit, "workspace_id": workspace_id, "session_id": session_id}
    job_id = INSERT.insert(tx, sender_id=sender_id, payload=json.dumps(payload), created_at=at, **values)
    INSERT_OBSERVERS.run_many(tx, [{"job_id": job_id, "peer_id": peer_id} for peer_id in observers])


def drop_observer(tx: Tx, session_id: int, peer_id: int) -> None:
    """Let what waits in a session change this peer's view no more."""
    waiting = select(jobs.c.id, jobs.c.payload).join_from(jobs, job_observers, job_observers.c.job_id == jobs.c.id)
    waiting = waiting.where(jobs.c.session_id == session_id, job_observers.c.peer_id == peer_id)
    for row in tx.execute(waiting.where(jobs.c.kind == "representation", text(f"jobs.{OPEN_JOB}"))).all():
        payload = json.loads(row.payload)
        left = [observer for observer in payload["observers"] if observer != peer_id]
        changed = json.dumps({**payload, "observers": left})
        tx.execute(update(jobs).where(jobs.c.id == row.id).values(payload=changed))
        gone = (job_observers.c.job_id == row.id, job_observers.c.peer_id == peer_id)
        tx.execute(delete(job_observers).where(*gone))


def has_work(tx: Tx, at: int) -> bool:
    """Is there a job that could be claimed now? Cheap, and needs no write lock."""
    return CLAIMABLE.first(tx, at=at) is not None


def claim_job(tx: Tx, owner: str, at: int) -> Job | None:
    """Take the oldest job whose unit nobody works on."""
    row = CLAIMABLE.first(tx, at=at)
    if row is None:
        return None
    attempts = row.attempts + 1
    CLAIM.run(tx, job_id=row.id, owner=owner, lease_until=at + LEASE, attempts=attempts)
    payload = json.loads(row.payload)
    return Job(row.id, row.kind, row.unit, row.workspace_id, row.session_id, payload, attempts, owner)


def renew_job(tx: Tx, job: Job, at: int) -> None:
    """Keep a job that takes long."""
    tx.execute(update(jobs).where(*MINE).values(lease_until=at + LEASE), _identity(job))


def finish_job(tx: Tx, job: Job, at: int) -> bool:
    """Mark it done. False when the lease was lost: then its effects must not be kept."""
    return FINISH.run(tx, finished_at=at, error=None, **_identity(job)) == 1


def fail_job(tx: Tx, job: Job, reason: str, at: int) -> None:
    """Try again later, or give up and keep the reason."""
    if job.attempts >= ATTEMPTS:
        changes = {"state": "failed", "finished_at": at, "error": reason}
    else:
        wait = BACK_OFF * 2 ** (job.attempts - 1)
        changes = {"state": "pending", "not_before": at + wait, "error": reason}
    tx.execute(update(jobs).where(*MINE).values(**changes), _identity(job))


def forget_finished(tx: Tx, at: int) -> None:
    """Drop jobs that were done long ago; failed ones stay longer."""
    old = or_(
        (jobs.c.state == "done") & (jobs.c.finished_at < at - KEEP_DONE),
        (jobs.c.state == "failed") & (jobs.c.finished_at < at - KEEP_FAILED),
    )
    gone = select(jobs.c.id).where(jobs.c.finished_at.is_not(None), old).limit(1000)
    ids = [row.id for row in tx.execute(gone)]
    tx.execute(delete(job_observers).where(job_observers.c.job_id.in_(ids)))
    tx.execute(delete(jobs).where(jobs.c.id.in_(ids)))


def _identity(job: Job) -> dict[str, Any]:
    return {"job_id": job.id, "owned_by": job.owner, "attempt": job.attempts}
