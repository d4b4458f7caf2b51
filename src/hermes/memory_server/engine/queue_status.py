"""The counts of background work that is done, running and pending, in total and by session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import exists, func, select, text

from hermes.memory_server import limits
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.tables import OPEN_JOB, job_observers, jobs, sessions
from hermes.memory_server.engine.jobs import DEFERRED_PREFIX, PROMISED, TRACKED
from hermes.memory_server.engine.peers import find_peer
from hermes.memory_server.engine.sessions import find_session
from hermes.memory_server.engine.workspaces import workspace_id_of


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of work units by state. A failed unit counts as pending, because it is retried."""

    completed: int = 0
    running: int = 0
    pending: int = 0

    @property
    def total(self) -> int:
        return self.completed + self.running + self.pending


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The counts of a workspace, and those of each session by its internal id, unless one session was given; at most
    `limits.MAX_STATUS_SESSIONS`, sessions with open work first.

    The others count the whole workspace, by kind: `promised` has the open deletions, merges and scopes (their number,
    and the most attempts of one), `failing` the work units that failed and are retried, with the reason of one of
    them, and `waiting` those that wait for a model, in the same form.
    """

    all: Counts
    sessions: dict[str, Counts] | None
    promised: dict[str, dict[str, int]]
    failing: dict[str, dict[str, int | str]]
    waiting: dict[str, dict[str, int | str]]


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


def _unfinished(
    tx: Tx, workspace_id: int
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int | str]], dict[str, dict[str, int | str]]]:
    """Return the open promised, failing and model-deferred work, by kind."""
    deferred = func.coalesce(jobs.c.error.startswith(DEFERRED_PREFIX), False).label("deferred")
    counts = (func.count().label("waiting"), func.max(jobs.c.attempts).label("tries"))
    errors = (func.count(jobs.c.error).label("failed"), func.max(jobs.c.error).label("reason"))
    own = (jobs.c.workspace_id == workspace_id, text(OPEN_JOB), jobs.c.kind.in_(PROMISED))
    query = select(jobs.c.kind, deferred, *counts, *errors).where(*own)
    rows = tx.execute(query.group_by(jobs.c.kind, deferred).order_by(jobs.c.kind)).all()
    promised = {row.kind: {"waiting": row.waiting, "tries": row.tries} for row in rows if row.kind not in TRACKED}
    failed = [row for row in rows if row.kind in TRACKED and row.failed]
    failing, waiting = (
        {
            row.kind: {"waiting": row.failed, "tries": row.tries, "reason": row.reason.removeprefix(DEFERRED_PREFIX)}
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
