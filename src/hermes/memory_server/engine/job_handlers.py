"""The handler of each kind of background job (`job_kinds.py`), as a table.

`prepare` runs outside any transaction, concurrently, and for at most `seconds`: it reads, or asks a model, an embedder
or the network. If it raises, the job is retried later; after `ModelWaiting` it waits without counting an attempt.
`commit` gets the prepared value and runs in the transaction that finishes the job, so its effect happens exactly once.
Others may have written in between. If it returns True, work is left, and the job runs once more before the rest of its
unit.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from hermes.memory_server.db.catching_up import catch_up
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.neighbours import VectorScope
from hermes.memory_server.embedder import Embedder
from hermes.memory_server.engine.deletion import ROWS_PER_TRANSACTION as REMOVED_PER_TRANSACTION
from hermes.memory_server.engine.deletion import purge_session, purge_workspace, remove_part
from hermes.memory_server.engine.derive import (
    DreamProposals,
    Statement,
    embed_statements,
    propose,
    read_statements,
    remember,
)
from hermes.memory_server.engine.dreams import dream
from hermes.memory_server.engine.job_kinds import (
    CatchUpJob,
    DerivationJob,
    DreamJob,
    IndexingJob,
    MessageRemovalJob,
    P,
    PeerDeletionJob,
    PeerMergeJob,
    RereadingJob,
    ScopeJob,
    SessionDeletionJob,
    SummaryJob,
    TidyingJob,
    WebhookJob,
    WorkspaceDeletionJob,
)
from hermes.memory_server.engine.jobs import Job, read_observers
from hermes.memory_server.engine.merging import continue_merge
from hermes.memory_server.engine.peer_deletion import purge_peer
from hermes.memory_server.engine.quotes import own_sessions
from hermes.memory_server.engine.rereading import REST_FACTOR, RereadPart, commit_part, prepare_part
from hermes.memory_server.engine.scopes import copy_conclusions
from hermes.memory_server.engine.standing import catch_up_standing
from hermes.memory_server.engine.summaries import (
    SessionSummary,
    compose_lines,
    lock_removals,
    plan_summary,
    store_summary,
)
from hermes.memory_server.engine.tidying import tidy_files, tidy_index
from hermes.memory_server.engine.webhooks import WebhookDelivery
from hermes.memory_server.model.answer import ModelWaiting
from hermes.memory_server.model.door import ModelDoor
from hermes.memory_server.model.memory_model import MemoryModel

V = TypeVar("V")
ROWS_PER_TRANSACTION = 500
"""The number of messages or conclusions of an earlier version read in one transaction, because writers wait
meanwhile.
"""
MODEL_TIMEOUT_SECONDS = 1200.0
"""For jobs that may ask a model several times, each time with its own deadline."""
WEBHOOK_TIMEOUT_SECONDS = 10.0
INDEX_TIMEOUT_SECONDS = 6 * 3600.0
"""For an index of many millions of vectors."""
MAX_CONCURRENT_WEBHOOKS = 100
"""The number of events delivered at a time, one per endpoint. An endpoint that hangs takes up only its own slot."""


@dataclass(frozen=True, slots=True)
class JobTools:
    """The resources that `prepare` may use."""

    database: Database
    embedder: Embedder
    delivery: WebhookDelivery = field(default_factory=WebhookDelivery)
    models: ModelDoor | None = None
    """`await models.of(workspace_id)` returns the model to ask, or None. None if this worker asks no model."""


@dataclass(frozen=True)
class JobHandler(Generic[P, V]):
    """How jobs of one kind run, and how many at a time."""

    prepare: Callable[[JobTools, Job[P]], Coroutine[Any, Any, V]]
    commit: Callable[[Tx, Job[P], V, int], bool | None]
    places: int = 1
    seconds: float = 60.0
    rest_share: float | None = None
    """The pause after a job, as a multiple of the job's duration; None: until nobody writes."""


async def _prepare_nothing(_tools: JobTools, _job: Job[Any]) -> None:
    """Prepare nothing."""


async def _statements(tools: JobTools, job: Job[DerivationJob]) -> list[Statement]:
    said = await tools.database.read(lambda tx: read_statements(tx, job.payload.messages))
    return await embed_statements(tools.embedder, said)


async def _summary(tools: JobTools, job: Job[SummaryJob]) -> SessionSummary | None:
    given, session = job.payload, job.session_id or 0
    model = await _composing(tools, job)
    if model is not None and not model.may_hear_guests:
        model = model if await tools.database.read(lambda tx: own_sessions(tx, [session])) else None
    has_model = model is not None
    plan = await tools.database.read(lambda tx: plan_summary(tx, session, given.length, given.seq, has_model=has_model))
    if plan is None or model is None:
        return None if plan is None else plan.extract()
    try:
        return plan.finish(await compose_lines(model, plan.kind, plan.rows))
    except ModelWaiting:  # until then an extract serves
        await tools.database.write(lambda tx: _summarised(tx, job, plan.extract(), plan.rows[-1].created_at))
        raise


async def _composing(tools: JobTools, job: Job[Any]) -> MemoryModel | None:
    """Return the model that may compose texts in the job's workspace, or None."""
    model = None if tools.models is None else await tools.models.of(job.workspace_id)
    return model if model is not None and model.model_class == "compose" else None


async def _propose(tools: JobTools, job: Job[DreamJob]) -> DreamProposals:
    model = await _composing(tools, job)
    return DreamProposals() if model is None else await propose(tools.database, tools.embedder, model, job.payload)


async def _index(tools: JobTools, job: Job[IndexingJob]) -> None:
    await tools.database.index_vectors(VectorScope(job.payload.scope_kind, job.payload.id))


async def _post(tools: JobTools, job: Job[WebhookJob]) -> None:
    await tools.delivery.post(job.payload.url, job.payload.body)


def _learn(tx: Tx, job: Job[DerivationJob], said: list[Statement], at: int) -> None:
    remember(tx, job.workspace_id, read_observers(tx, job), said, at)


def _summarised(tx: Tx, job: Job[SummaryJob], made: SessionSummary | None, at: int) -> bool:
    if made is None or job.session_id is None:
        return False
    if made.removals != lock_removals(tx, job.session_id):
        return True  # the summary may quote messages that were deleted since
    store_summary(tx, job.session_id, made, at)
    return False


HANDLERS: Mapping[str, JobHandler[Any, Any]] = {
    DerivationJob.kind: JobHandler(_statements, _learn, places=4),
    SummaryJob.kind: JobHandler(_summary, _summarised, places=4, seconds=MODEL_TIMEOUT_SECONDS),
    DreamJob.kind: JobHandler[DreamJob, DreamProposals](
        _propose,
        lambda tx, job, found, at: dream(tx, job.workspace_id, job.payload, found, at),
        seconds=MODEL_TIMEOUT_SECONDS,
    ),
    ScopeJob.kind: JobHandler[ScopeJob, None](
        _prepare_nothing, lambda tx, job, _, at: copy_conclusions(tx, job.workspace_id, job.payload, at)
    ),
    SessionDeletionJob.kind: JobHandler[SessionDeletionJob, None](
        _prepare_nothing, lambda tx, job, _, at: purge_session(tx, job.payload.session, at)
    ),
    WorkspaceDeletionJob.kind: JobHandler[WorkspaceDeletionJob, None](
        _prepare_nothing, lambda tx, job, _, at: purge_workspace(tx, job.workspace_id, at)
    ),
    PeerDeletionJob.kind: JobHandler[PeerDeletionJob, None](
        _prepare_nothing, lambda tx, job, _, at: purge_peer(tx, job.workspace_id, job.payload.peer, at)
    ),
    MessageRemovalJob.kind: JobHandler[MessageRemovalJob, None](
        _prepare_nothing, lambda tx, job, _, at: remove_part(tx, job.payload, at) == REMOVED_PER_TRANSACTION
    ),
    PeerMergeJob.kind: JobHandler[PeerMergeJob, None](
        _prepare_nothing, lambda tx, job, _, at: continue_merge(tx, job.payload.merge, at)
    ),
    TidyingJob.kind: JobHandler[TidyingJob, None](
        lambda tools, job: tidy_files(tools.database, job.payload),
        lambda tx, job, _, at: tidy_index(tx, job.payload, at),
    ),
    CatchUpJob.kind: JobHandler[CatchUpJob, None](
        _prepare_nothing,
        lambda tx, *_: catch_up(tx, ROWS_PER_TRANSACTION) or catch_up_standing(tx, ROWS_PER_TRANSACTION),
    ),
    RereadingJob.kind: JobHandler[RereadingJob, RereadPart | None](
        lambda tools, _: prepare_part(tools.database, tools.embedder),
        lambda tx, _, part, at: commit_part(tx, part, at),
        rest_share=REST_FACTOR,
    ),
    IndexingJob.kind: JobHandler(_index, lambda *_: None, seconds=INDEX_TIMEOUT_SECONDS),
    WebhookJob.kind: JobHandler(
        _post, lambda *_: None, places=MAX_CONCURRENT_WEBHOOKS, seconds=WEBHOOK_TIMEOUT_SECONDS
    ),  # nothing to commit
}
