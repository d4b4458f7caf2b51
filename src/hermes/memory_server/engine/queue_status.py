"""How much background work is done, running and waiting; in all and by session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import exists, func, select, text

from hermes.memory_server import limits
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.tables import OPEN_JOB, job_observers, jobs, sessions
from hermes.memory_server.engine.jobs import DEFERRED, PROMISED, TRACKED
from hermes.memory_server.engine.peers import find_peer
from hermes.memory_server.engine.sessions import find_session
from hermes.memory_server.engine.workspaces import workspace_id_of


@dataclass(frozen=True, slots=True)
class Counts:
    """Work units by state. One that failed is pending: it is tried again."""

    completed: int = 0
    running: int = 0
    pending: int = 0

    @property
    def total(self) -> int:
        return self.completed + self.running + self.pending


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """All counts; those of each session under its internal id, unless one session was asked for: of so many sessions
    (`limits.MAX_STATUS_SESSIONS`), those with open work first. Of the workspace, by kind: `promised` has the deletions,
    merges and scopes that are not done (how many, and the most tries of one), `failing` the work units that failed and
    are tried again, with the reason of one of them, `waiting` those that wait for a model, in the same shape."""

    all: Counts
    sessions: dict[str, Counts] | None
    promised: dict[str, dict[str, int]]
    failing: dict[str, dict[str, int | str]]
    waiting: dict[str, dict[str, int | str]]


def read_status(tx: Tx, workspace: str, observer: str | None, sender: str | None, session: str | None) -> QueueCounts:
    """The counts, limited to whose view changes, who spoke, and where. A name nobody has counts nothing."""
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


def _unfinished(
    tx: Tx, workspace_id: int
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int | str]], dict[str, dict[str, int | str]]]:
    """Return what is promised, what fails and what waits for a model, by kind."""
    deferred = func.coalesce(jobs.c.error.startswith(DEFERRED), False).label("deferred")
    counts = (func.count().label("waiting"), func.max(jobs.c.attempts).label("tries"))
    errors = (func.count(jobs.c.error).label("failed"), func.max(jobs.c.error).label("reason"))
    own = (jobs.c.workspace_id == workspace_id, text(OPEN_JOB), jobs.c.kind.in_(PROMISED))
    query = select(jobs.c.kind, deferred, *counts, *errors).where(*own)
    rows = tx.execute(query.group_by(jobs.c.kind, deferred).order_by(jobs.c.kind)).all()
    promised = {row.kind: {"waiting": row.waiting, "tries": row.tries} for row in rows if row.kind not in TRACKED}
    failed = [row for row in rows if row.kind in TRACKED and row.failed]
    failing, waiting = (
        {
            row.kind: {"waiting": row.failed, "tries": row.tries, "reason": row.reason.removeprefix(DEFERRED)}
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
