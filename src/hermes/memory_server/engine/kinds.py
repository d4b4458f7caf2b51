"""The kinds of background work, as a table. A new kind is a name in `jobs.JobKind`, an entry here, and an `add_job`
where it is caused; `jobs.py` also says which kinds are never given up (`PROMISED`) or wait (`AFTER_LEARNING`).

`prepare` runs outside any transaction, side by side with others and for at most `seconds`: it reads, asks a model, an
embedder or the outside. It may raise; then the job is tried again later, and after `ModelWaiting` it waits without that
counting as a try. `commit` gets what was prepared and runs in
the transaction that ends the job: its effect is there exactly once. Between the two, others may have written. When it
returns True something is left to do, and the job is done once more, before the rest of its unit.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from hermes.memory_server.db.catching_up import catch_up
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.neighbours import VectorScope
from hermes.memory_server.embedder import Embedder
from hermes.memory_server.engine.composing import compose_lines
from hermes.memory_server.engine.deductions import DreamProposals, propose
from hermes.memory_server.engine.deletion import purge_session, purge_workspace
from hermes.memory_server.engine.delivery import WebhookDelivery
from hermes.memory_server.engine.derive import Statement, embed_statements, read_statements, remember
from hermes.memory_server.engine.dreams import dream
from hermes.memory_server.engine.jobs import Job, read_observers
from hermes.memory_server.engine.merging import go_on_merging
from hermes.memory_server.engine.peer_deletion import purge_peer
from hermes.memory_server.engine.removal import go_on_removing
from hermes.memory_server.engine.rereading import REST_SHARE, commit_part, prepare_part
from hermes.memory_server.engine.scopes import copy_conclusions
from hermes.memory_server.engine.standing import catch_up_standing
from hermes.memory_server.engine.summaries import SessionSummary, count_removals, plan_summary, store_summary
from hermes.memory_server.engine.tidying import tidy_files, tidy_index
from hermes.memory_server.model.answer import ModelWaiting
from hermes.memory_server.model.door import ModelDoor
from hermes.memory_server.model.memory_model import MemoryModel
from hermes.memory_server.model.own_words import own_sessions

P = TypeVar("P")
READ_AT_ONCE = 500
"""How many messages or conclusions of an earlier version are read in one transaction: who wants to write waits."""
MODEL_SECONDS = 1200.0
"""For work that may ask a model, several times and each with a deadline of its own."""
WEBHOOK_SECONDS = 10.0
INDEX_SECONDS = 6 * 3600.0
"""For an index of many millions of vectors."""
WEBHOOKS = 100
"""How many events are on their way at once, one for each endpoint. One that hangs takes a place and nothing else."""


@dataclass(frozen=True, slots=True)
class JobTools:
    """What preparing may use."""

    database: Database
    embedder: Embedder
    delivery: WebhookDelivery = field(default_factory=WebhookDelivery)
    models: ModelDoor | None = None
    """`await models.of(workspace_id)` is the model to ask, or None; None where this worker asks none."""


@dataclass(frozen=True, slots=True)
class JobHandler(Generic[P]):
    """How jobs of one kind are done, and how many at once."""

    prepare: Callable[[JobTools, Job], Coroutine[Any, Any, P]]
    commit: Callable[[Tx, Job, P, int], bool | None]
    places: int = 1
    seconds: float = 60.0
    rest_share: float | None = None
    """For so many times as long as one job took, the next of its kind waits; None: until nobody writes."""


async def _nothing(_tools: JobTools, _job: Job) -> None:
    """There is nothing to prepare."""


async def _statements(tools: JobTools, job: Job) -> list[Statement]:
    said = await tools.database.read(lambda tx: read_statements(tx, job.payload["messages"]))
    return await embed_statements(tools.embedder, said)


async def _summary(tools: JobTools, job: Job) -> SessionSummary | None:
    given, session = job.payload, job.session_id or 0
    model = await _composing(tools, job)
    if model is not None and not model.may_hear_guests:
        model = model if await tools.database.read(lambda tx: own_sessions(tx, [session])) else None
    has_model = model is not None
    plan = await tools.database.read(
        lambda tx: plan_summary(tx, session, given["kind"], given["seq"], has_model=has_model)
    )
    if plan is None or model is None:
        return None if plan is None else plan.extract()
    try:
        return plan.finish(await compose_lines(model, plan.kind, plan.rows))
    except ModelWaiting:  # meanwhile there is an extract
        await tools.database.write(lambda tx: _summarised(tx, job, plan.extract(), plan.rows[-1].created_at))
        raise


async def _composing(tools: JobTools, job: Job) -> MemoryModel | None:
    """The model that may write, of the job's workspace; None where there is none."""
    model = None if tools.models is None else await tools.models.of(job.workspace_id)
    return model if model is not None and model.model_class == "compose" else None


async def _propose(tools: JobTools, job: Job) -> DreamProposals:
    model = await _composing(tools, job)
    return DreamProposals() if model is None else await propose(tools.database, tools.embedder, model, job.payload)


async def _tidy_files(tools: JobTools, job: Job) -> None:
    await tidy_files(tools.database, job.payload)


async def _index(tools: JobTools, job: Job) -> None:
    await tools.database.index_vectors(VectorScope(job.payload["kind"], job.payload["id"]))


async def _post(tools: JobTools, job: Job) -> None:
    await tools.delivery.post(job.payload["url"], job.payload["body"])


def _learn(tx: Tx, job: Job, said: list[Statement], at: int) -> None:
    remember(tx, job.workspace_id, read_observers(tx, job), said, at)


def _summarised(tx: Tx, job: Job, made: SessionSummary | None, at: int) -> bool:
    if made is None or job.session_id is None:
        return False
    if made.removals != count_removals(tx, job.session_id):
        return True  # it may hold what was deleted since
    store_summary(tx, job.session_id, made, at)
    return False


KINDS: Mapping[str, JobHandler[Any]] = {
    "representation": JobHandler(_statements, _learn, places=4),
    "summary": JobHandler(_summary, _summarised, places=4, seconds=MODEL_SECONDS),
    "dream": JobHandler(
        _propose, lambda tx, job, found, at: dream(tx, job.workspace_id, job.payload, found, at), seconds=MODEL_SECONDS
    ),
    "scope": JobHandler(_nothing, lambda tx, job, _, at: copy_conclusions(tx, job.workspace_id, job.payload, at)),
    "delete_session": JobHandler(_nothing, lambda tx, job, _, at: purge_session(tx, job.payload["session"], at)),
    "delete_workspace": JobHandler(_nothing, lambda tx, job, _, at: purge_workspace(tx, job.workspace_id, at)),
    "delete_peer": JobHandler(
        _nothing, lambda tx, job, _, at: purge_peer(tx, job.workspace_id, job.payload["peer"], at)
    ),
    "delete_messages": JobHandler(_nothing, lambda tx, job, _, at: go_on_removing(tx, job.payload, at)),
    "merge_peers": JobHandler(_nothing, lambda tx, job, _, at: go_on_merging(tx, job.payload["merge"], at)),
    "tidy": JobHandler(_tidy_files, lambda tx, job, _, at: tidy_index(tx, job.payload, at)),
    "catch_up": JobHandler(_nothing, lambda tx, *_: catch_up(tx, READ_AT_ONCE) or catch_up_standing(tx, READ_AT_ONCE)),
    "reread": JobHandler(
        lambda tools, _: prepare_part(tools.database, tools.embedder),
        lambda tx, _, part, at: commit_part(tx, part, at),
        rest_share=REST_SHARE,
    ),
    "index": JobHandler(_index, lambda *_: None, seconds=INDEX_SECONDS),
    "webhook": JobHandler(_post, lambda *_: None, places=WEBHOOKS, seconds=WEBHOOK_SECONDS),  # posting is all
}
