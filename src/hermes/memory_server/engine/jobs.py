"""Background jobs as rows. A job is inserted in the transaction that causes it, so neither exists without the other.

pending ── claim (lease) ── running ── finish ── done
   └──────── retry, later ─────┘  └── a webhook, too often ── failed

Jobs of one unit run one after another, jobs of different units side by side. An expired lease can be taken over; its
former owner cannot finish the job.

The counts of background work that is done, running and pending, in total and by session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, cast

import msgspec
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
    text,
    update,
)

from hermes.memory_server import limits
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.dialects import announce_work
from hermes.memory_server.db.statements import PreparedInsert, PreparedStatement, in_parts, inserting_new
from hermes.memory_server.db.tables import OPEN_JOB, job_observers, jobs, sessions
from hermes.memory_server.engine.job_kinds import (
    AFTER_LEARNING,
    APART,
    NAMING_PEERS,
    PAYLOADS,
    PROMISED,
    TRACKED,
    DerivationJob,
    JobPayload,
    P,
    fields_naming,
    read_payload,
    write_payload,
)
from hermes.memory_server.engine.peers import find_peer
from hermes.memory_server.engine.sessions import find_session
from hermes.memory_server.engine.workspaces import workspace_id_of

LEASE_MICROSECONDS = 10_000_000
"""How long a claimed job belongs to its owner unless renewed, which is how long a killed worker's jobs wait."""
MAX_ATTEMPTS = 5
FIRST_RETRY_MICROSECONDS = 2_000_000
"""The delay before the second attempt, doubled for each further one."""
MAX_WAIT_MICROSECONDS = 2 * 3600 * 1_000_000
DONE_LIFETIME_MICROSECONDS = 24 * 3600 * 1_000_000
FAILED_LIFETIME_MICROSECONDS = 30 * DONE_LIFETIME_MICROSECONDS
MAX_REASON_CHARS = 500
DEFERRED_PREFIX = "waiting: "
"""The prefix of the reason of a job that waits for a model."""
MIN_DEFERRAL_MICROSECONDS = 120 * 1_000_000
"""The shortest time that such a job waits."""
JOBS_PER_TRANSACTION = 1000
"""The number of finished jobs that one transaction deletes."""
MAX_RETRY_MICROSECONDS = 600 * 1_000_000
"""The longest delay between two attempts of a promised job."""


def _claimable() -> Select[Any]:
    """Return a query for the oldest job of a kind that may run now."""
    job, other, lesson = jobs.alias("job"), jobs.alias("other"), jobs.alias("lesson")
    earlier = exists().where(other.c.unit == job.c.unit, other.c.id < job.c.id, text(f"other.{OPEN_JOB}"))
    unlearnt = exists().where(
        lesson.c.workspace_id == job.c.workspace_id,
        lesson.c.kind == DerivationJob.kind,
        lesson.c.id < job.c.id,
        lesson.c.attempts < MAX_ATTEMPTS,
        text(f"lesson.{OPEN_JOB}"),
    )
    at: BindParameter[int] = bindparam("at", type_=jobs.c.not_before.type)
    # A time further ahead than any that is set here comes from before the clock was set back.
    due = or_(job.c.not_before <= at, job.c.not_before > at + MAX_WAIT_MICROSECONDS)
    free = or_(
        (job.c.state == "pending") & due,
        (job.c.state == "running") & or_(job.c.lease_until < at, job.c.lease_until > at + LEASE_MICROSECONDS),
    )
    ready = or_(and_(*(job.c.kind != kind for kind in AFTER_LEARNING)), ~unlearnt)
    chosen = select(job.c.id).where(job.c.kind == bindparam("kind"), text(f"job.{OPEN_JOB}"), free, ~earlier, ready)
    return chosen.order_by(job.c.id).limit(1)


MINE = (
    jobs.c.id == bindparam("job_id"),
    jobs.c.owner == bindparam("owned_by"),
    jobs.c.attempts == bindparam("attempt"),
    jobs.c.state == "running",
)
"""The condition that a job still belongs to its owner."""
INSERT = PreparedInsert(
    jobs, "kind", "unit", "workspace_id", "session_id", "sender_id", "payload", "created_at", "not_before"
)
INSERT_OBSERVERS = PreparedStatement(inserting_new(job_observers, "job_id", "peer_id"))
OBSERVERS = PreparedStatement(select(job_observers.c.peer_id).where(job_observers.c.job_id == bindparam("job_id")))
CLAIMABLE = PreparedStatement(_claimable())
OPEN = PreparedStatement(select(jobs.c.id).where(jobs.c.kind == bindparam("kind"), text(f"jobs.{OPEN_JOB}")).limit(1))
CLAIM = PreparedStatement(
    update(jobs)
    .where(jobs.c.id == _claimable().with_for_update(skip_locked=True).scalar_subquery())
    .values(
        state="running",
        owner=bindparam("owned_by"),
        lease_until=bindparam("until"),
        attempts=jobs.c.attempts + 1,
    )
    .returning(*jobs.c)
)
RENEW = PreparedStatement(update(jobs).where(*MINE).values(lease_until=bindparam("until")))
FINISH = PreparedStatement(update(jobs).where(*MINE).values(state="done", finished_at=bindparam("at"), error=None))


@dataclass(frozen=True, slots=True)
class Job(Generic[P]):
    """A job that this owner may run now."""

    id: int
    kind: str
    unit: str
    workspace_id: int
    session_id: int | None
    stored: str
    attempts: int
    owner: str

    @property
    def payload(self) -> P:
        """Return the typed payload. Raise msgspec.ValidationError if the stored one does not fit."""
        return cast(P, read_payload(PAYLOADS[self.kind], self.stored))


def add_job(
    tx: Tx,
    payload: JobPayload,
    unit: str,
    at: int,
    workspace_id: int,
    *,
    session_id: int | None = None,
    sender_id: int | None = None,
    observers: Iterable[int] = (),
    not_before: int = 0,
) -> None:
    """Queue a job. It runs after this transaction commits, and not before `not_before`."""
    values: dict[str, Any] = {"kind": payload.kind, "unit": unit, "workspace_id": workspace_id}
    values |= {"session_id": session_id, "sender_id": sender_id, "payload": write_payload(payload)}
    job_id = INSERT.add(tx, **values, created_at=at, not_before=not_before)
    announce_work(tx)
    INSERT_OBSERVERS.run_many(tx, [{"job_id": job_id, "peer_id": peer_id} for peer_id in observers])


def drop_jobs(tx: Tx, *which: ColumnElement[bool]) -> None:
    """Delete jobs. A worker that holds one notices when it finishes, and discards its result."""
    ids = select(jobs.c.id).where(*which).scalar_subquery()
    tx.execute(delete(job_observers).where(job_observers.c.job_id.in_(ids)))
    tx.execute(delete(jobs).where(*which))


def forget_peer(tx: Tx, workspace_id: int, peer_id: int) -> None:
    """Delete the jobs that a peer caused and the open ones about it; others no longer name it as an observer."""
    inside = jobs.c.workspace_id == workspace_id
    drop_jobs(tx, inside, jobs.c.sender_id == peer_id)
    drop_observer(tx, peer_id)
    for job_id, _, _ in _naming(tx, workspace_id, peer_id):
        drop_jobs(tx, jobs.c.id == job_id)


def replace_peer(tx: Tx, workspace_id: int, peer_id: int, by: int) -> None:
    """Replace a peer by peer `by` in all open jobs of a workspace: as author, as observer, and in payloads."""
    own = (jobs.c.workspace_id == workspace_id, text(f"jobs.{OPEN_JOB}"))
    tx.execute(update(jobs).where(*own, jobs.c.sender_id == peer_id).values(sender_id=by))
    for job_id in _drop_observer(tx, peer_id, select(jobs.c.id).where(*own)):
        INSERT_OBSERVERS.run(tx, job_id=job_id, peer_id=by)
    for job_id, payload, fields in _naming(tx, workspace_id, peer_id):
        _store_payload(tx, job_id, msgspec.structs.replace(payload, **dict.fromkeys(fields, by)))


def _naming(tx: Tx, workspace_id: int, peer_id: int) -> Iterator[tuple[int, JobPayload, list[str]]]:
    """Yield the open jobs whose payload names a peer, with the fields that do. An unreadable payload names nobody: its
    job will fail.
    """
    own = (jobs.c.workspace_id == workspace_id, text(f"jobs.{OPEN_JOB}"), jobs.c.kind.in_(NAMING_PEERS))
    named = jobs.c.payload.contains(str(peer_id))
    for row in tx.execute(select(jobs.c.id, jobs.c.kind, jobs.c.payload).where(*own, named)).all():
        with suppress(msgspec.DecodeError):
            payload = read_payload(PAYLOADS[row.kind], row.payload)
            if fields := fields_naming(payload, peer_id):
                yield row.id, payload, fields


def _store_payload(tx: Tx, job_id: int, payload: JobPayload) -> None:
    tx.execute(update(jobs).where(jobs.c.id == job_id).values(payload=write_payload(payload)))


def drop_observer(tx: Tx, peer_id: int, session_id: int | None = None) -> None:
    """Remove a peer from the observers of all open derivation jobs, or of those of one session."""
    waiting = select(jobs.c.id).where(jobs.c.kind == DerivationJob.kind, text(f"jobs.{OPEN_JOB}"))
    if session_id is not None:
        waiting = waiting.where(jobs.c.session_id == session_id)
    _drop_observer(tx, peer_id, waiting)


def _drop_observer(tx: Tx, peer_id: int, waiting: Select[Any]) -> Sequence[int]:
    """Remove a peer from the observers of these jobs. Return the ids of the jobs that it observed."""
    observed = waiting.join(job_observers, job_observers.c.job_id == jobs.c.id)
    ids = tx.execute(observed.where(job_observers.c.peer_id == peer_id).with_for_update(of=jobs)).scalars().all()
    for part in in_parts(ids):
        gone = (job_observers.c.job_id.in_(part), job_observers.c.peer_id == peer_id)
        tx.execute(delete(job_observers).where(*gone))
    return ids


def read_observers(tx: Tx, job: Job[Any]) -> list[int]:
    """Return the ids of the peers whose conclusions a job changes."""
    return [row.peer_id for row in OBSERVERS.rows(tx, job_id=job.id)]


def has_work(tx: Tx, kind: str, at: int) -> bool:
    """Return True if a job of this kind can be claimed now. Cheap, and takes no write lock."""
    return OPEN.first(tx, kind=kind) is not None and CLAIMABLE.first(tx, kind=kind, at=at) is not None


def claim_jobs(tx: Tx, owner: str, kind: str, at: int, limit: int) -> list[Job[Any]]:
    """Claim up to `limit` jobs of a kind, the oldest first, each of a unit with no running job."""
    claimed: list[Job[Any]] = []
    while len(claimed) < limit and (job := claim_job(tx, owner, kind, at)) is not None:
        claimed.append(job)
    return claimed


def claim_job(tx: Tx, owner: str, kind: str, at: int) -> Job[Any] | None:
    """Claim the oldest job of a kind whose unit has no running job."""
    row = CLAIM.first(tx, kind=kind, at=at, owned_by=owner, until=at + LEASE_MICROSECONDS)
    if row is None:
        return None
    return Job(row.id, row.kind, row.unit, row.workspace_id, row.session_id, row.payload, row.attempts, owner)


def renew_job(tx: Tx, job: Job[Any], at: int) -> bool:
    """Renew the lease of a running job. Return False if the lease was lost."""
    return RENEW.run(tx, until=at + LEASE_MICROSECONDS, **_identity(job)) == 1


def finish_job(tx: Tx, job: Job[Any], at: int) -> bool:
    """Mark a job as done. Return False if the lease was lost: its effects must then be rolled back."""
    return FINISH.run(tx, at=at, **_identity(job)) == 1


def keep_place(tx: Tx, job: Job[Any]) -> None:
    """Queue a job again that was just finished, in its old place: the rest of it runs before the rest of its unit."""
    waits = {"state": "pending", "attempts": 0, "not_before": 0, "finished_at": None}
    tx.execute(update(jobs).where(jobs.c.id == job.id).values(waits))


def fail_job(tx: Tx, job: Job[Any], reason: str, at: int) -> None:
    """Retry a job later, or give up and store the reason. Promised kinds are retried without end."""
    changes: dict[str, Any] = {"error": reason[:MAX_REASON_CHARS]}
    if job.attempts >= MAX_ATTEMPTS and job.kind not in PROMISED:
        changes |= {"state": "failed", "finished_at": at}
    else:
        wait = min(FIRST_RETRY_MICROSECONDS * 2 ** min(job.attempts - 1, 20), MAX_RETRY_MICROSECONDS)
        changes |= {"state": "pending", "not_before": at + wait}
        if job.attempts >= MAX_ATTEMPTS and job.kind in APART:
            changes["unit"] = f"{job.kind}:{job.id}"
    is_mine = tx.execute(update(jobs).where(*MINE).values(**changes), _identity(job)).rowcount == 1
    if is_mine and job.attempts >= MAX_ATTEMPTS and job.kind == DerivationJob.kind:
        with suppress(msgspec.DecodeError):  # the reason of the failure says so
            _split(tx, job)


def _split(tx: Tx, job: Job[DerivationJob]) -> None:
    """Split a failing derivation job into one job per message: usually one message is the cause."""
    parts = [msgspec.structs.replace(job.payload, messages=(message,)) for message in job.payload.messages]
    if len(parts) < 2:
        return
    _store_payload(tx, job.id, parts[0])
    row = tx.execute(select(jobs.c.sender_id, jobs.c.created_at).where(jobs.c.id == job.id)).one()
    whose: dict[str, Any] = {"session_id": job.session_id, "sender_id": row.sender_id}
    whose["observers"] = read_observers(tx, job)
    for part in parts[1:]:
        add_job(tx, part, f"{job.kind}:{job.id}:{part.messages[0]}", row.created_at, job.workspace_id, **whose)


def retry_failed(tx: Tx) -> None:
    """Make all failed promised jobs due at once, since the cause may have been fixed."""
    failed = (text(OPEN_JOB), jobs.c.state == "pending", jobs.c.error.is_not(None), jobs.c.kind.in_(PROMISED))
    tx.execute(update(jobs).where(*failed).values(not_before=0))


def defer_job(tx: Tx, job: Job[Any], reason: str, seconds: float, at: int) -> None:
    """Let a job wait for a model, which does not count as a failure. The delay is long enough for an idle server to
    stop; `resume_deferred` makes the job due when the model is back.
    """
    wait = min(max(int(seconds * 1e6), MIN_DEFERRAL_MICROSECONDS), MAX_WAIT_MICROSECONDS // 2)
    changes: dict[str, Any] = {"state": "pending", "attempts": jobs.c.attempts - 1, "not_before": at + wait}
    changes["error"] = f"{DEFERRED_PREFIX}{reason}"[:MAX_REASON_CHARS]
    tx.execute(update(jobs).where(*MINE).values(changes), _identity(job))


def resume_deferred(tx: Tx) -> None:
    """Make all jobs due that wait for a model."""
    waiting = (text(OPEN_JOB), jobs.c.state == "pending", jobs.c.error.startswith(DEFERRED_PREFIX))
    tx.execute(update(jobs).where(*waiting).values(not_before=0))


def release_job(tx: Tx, job: Job[Any]) -> None:
    """Return an unfinished job to the queue; another worker may claim it at once."""
    changes = {"state": "pending", "attempts": jobs.c.attempts - 1}
    tx.execute(update(jobs).where(*MINE).values(changes), _identity(job))


def forget_finished(tx: Tx, at: int) -> bool:
    """Delete some of the old finished jobs; failed ones are kept longer. Return True if more are left."""
    old = or_(
        (jobs.c.state == "done") & (jobs.c.finished_at < at - DONE_LIFETIME_MICROSECONDS),
        (jobs.c.state == "failed") & (jobs.c.finished_at < at - FAILED_LIFETIME_MICROSECONDS),
    )
    gone = select(jobs.c.id).where(jobs.c.finished_at.is_not(None), old).limit(JOBS_PER_TRANSACTION)
    ids = [row.id for row in tx.execute(gone)]
    tx.execute(delete(job_observers).where(job_observers.c.job_id.in_(ids)))
    tx.execute(delete(jobs).where(jobs.c.id.in_(ids)))
    return len(ids) == JOBS_PER_TRANSACTION


def _identity(job: Job[Any]) -> dict[str, Any]:
    return {"job_id": job.id, "owned_by": job.owner, "attempt": job.attempts}


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of work units by state. A failed unit counts as pending, because it is retried."""

    completed: int = 0
    running: int = 0
    pending: int = 0

    @property
    def total(self) -> int:
        return self.completed + self.running + self.pending


class OpenJobs(NamedTuple):
    """The number of open jobs of a kind, the most attempts of one, and the reason for which one of them waits."""

    waiting: int
    tries: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The counts of a workspace, and those of each session by its internal id, unless one session was given; at most
    `limits.MAX_STATUS_SESSIONS`, sessions with open work first.

    The others count the whole workspace, by kind: `promised` has the open deletions, merges and scopes, `failing` the
    work units that failed and are retried, and `waiting` those that wait for a model.
    """

    all: Counts
    sessions: dict[str, Counts] | None
    promised: dict[str, OpenJobs]
    failing: dict[str, OpenJobs]
    waiting: dict[str, OpenJobs]


def read_status(tx: Tx, workspace: str, observer: str | None, sender: str | None, session: str | None) -> QueueCounts:
    """Return the counts, limited to an observer, a sender or a session. Unknown names have no work."""
    place = workspace_id_of(tx, workspace)
    query = select(sessions.c.uid, jobs.c.state, func.count().label("number"))
    query = query.select_from(jobs.outerjoin(sessions, sessions.c.id == jobs.c.session_id))
    query = query.where(jobs.c.workspace_id == place, jobs.c.kind.in_(TRACKED))
    if observer is not None:
        peer = find_peer(tx, place, observer)
        seen = (job_observers.c.job_id == jobs.c.id, job_observers.c.peer_id == (peer.id if peer is not None else 0))
        query = query.where(exists().where(*seen))
    if sender is not None:
        peer = find_peer(tx, place, sender)
        query = query.where(jobs.c.sender_id == (peer.id if peer is not None else 0))
    if session is not None:
        found = find_session(tx, place, session)
        query = query.where(jobs.c.session_id == (found.id if found is not None else 0))
    rows = tx.execute(query.group_by(sessions.c.uid, jobs.c.state)).all()
    unfinished = _unfinished(tx, place)
    if session is not None:
        return QueueCounts(_sum(rows), None, *unfinished)
    by_session: dict[str, list[Any]] = {}
    for row in sorted(rows, key=lambda row: row.state == "done"):
        if row.uid is not None and (row.uid in by_session or len(by_session) < limits.MAX_STATUS_SESSIONS):
            by_session.setdefault(row.uid, []).append(row)
    return QueueCounts(_sum(rows), {name: _sum(parts) for name, parts in by_session.items()} or None, *unfinished)


def _unfinished(tx: Tx, workspace_id: int) -> tuple[dict[str, OpenJobs], dict[str, OpenJobs], dict[str, OpenJobs]]:
    """Return the open promised, failing and model-deferred work, by kind."""
    deferred = func.coalesce(jobs.c.error.startswith(DEFERRED_PREFIX), False).label("deferred")
    counts = (func.count().label("waiting"), func.max(jobs.c.attempts).label("tries"))
    errors = (func.count(jobs.c.error).label("failed"), func.max(jobs.c.error).label("reason"))
    own = (jobs.c.workspace_id == workspace_id, text(OPEN_JOB), jobs.c.kind.in_(PROMISED))
    query = select(jobs.c.kind, deferred, *counts, *errors).where(*own)
    rows = tx.execute(query.group_by(jobs.c.kind, deferred).order_by(jobs.c.kind)).all()
    promised = {row.kind: OpenJobs(row.waiting, row.tries) for row in rows if row.kind not in TRACKED}
    failed = [row for row in rows if row.kind in TRACKED and row.failed]
    failing, waiting = (
        {
            row.kind: OpenJobs(row.failed, row.tries, row.reason.removeprefix(DEFERRED_PREFIX))
            for row in failed
            if bool(row.deferred) == is_deferred
        }
        for is_deferred in (False, True)
    )
    return promised, failing, waiting


def _sum(rows: Iterable[Any]) -> Counts:
    by_state: Counter[str] = Counter()
    for row in rows:
        by_state[row.state] += row.number
    return Counts(by_state["done"], by_state["running"], by_state["pending"])
