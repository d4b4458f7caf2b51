"""What is behind: work that waits, and messages that cannot be found by their meaning yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import bindparam, exists, func, select, text

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import OPEN_JOB, jobs, message_vectors, messages
from hermes.memory_server.engine.jobs import PROMISED
from hermes.memory_server.engine.kinds import KINDS

COUNTED = 10_000
"""Jobs are counted up to this number."""
NEWEST = 100
"""Messages that are looked at, the newest first."""
LOOKED_AT = 1000
"""Jobs of a kind that are looked at, the oldest first."""


def _open_jobs(most: int) -> PreparedStatement:
    waiting = select(jobs.c.id).where(text(OPEN_JOB)).limit(most).subquery()
    return PreparedStatement(select(func.count().label("number")).select_from(waiting))


ANY, ALL = _open_jobs(1), _open_jobs(COUNTED)
OPEN = select(jobs).where(jobs.c.kind == bindparam("kind"), text(OPEN_JOB)).order_by(jobs.c.id)
OLDEST = PreparedStatement(OPEN.with_only_columns(jobs.c.created_at).limit(1))
TRIED = OPEN.with_only_columns(jobs.c.attempts).limit(LOOKED_AT).subquery()
TRIES = PreparedStatement(select(func.max(TRIED.c.attempts).label("number")))
"""The highest number of tries among the oldest open jobs of a kind."""
NEW = select(messages.c.id, messages.c.workspace_id).order_by(messages.c.id.desc()).limit(NEWEST).subquery()
UNFINDABLE = PreparedStatement(
    select(func.count().label("number"))
    .select_from(NEW)
    .where(
        ~exists().where(message_vectors.c.workspace_id == NEW.c.workspace_id, message_vectors.c.message_id == NEW.c.id)
    )
)


@dataclass(frozen=True, slots=True)
class Backlog:
    """How far background work is behind. `oldest` is in seconds, 0 when nothing waits. `retried` says for each kind of
    promised work that has failed how often it was tried."""

    waiting: int = 0
    oldest: float = 0.0
    unfindable: int = 0
    retried: Mapping[str, int] = field(default_factory=dict)


def has_open_jobs(tx: Tx) -> bool:
    """Is any job waiting, even for a later time, or running?"""
    [(number,)] = ANY.rows(tx)
    return bool(number)


def read_backlog(tx: Tx, at: int) -> Backlog:
    """What is behind at a time; a few index probes, however much there is."""
    [(waiting,)] = ALL.rows(tx)
    firsts = [found.created_at for kind in KINDS if (found := OLDEST.first(tx, kind=kind)) is not None]
    [(unfindable,)] = UNFINDABLE.rows(tx)
    tries: dict[str, int] = {kind: TRIES.rows(tx, kind=kind)[0].number or 0 for kind in PROMISED}
    retried = {kind: number for kind, number in tries.items() if number > 1}
    return Backlog(waiting, max(0.0, (at - min(firsts, default=at)) / 1e6), unfindable, retried)
