"""Rereading: apply this version's reader to a folder of an earlier version, part by part, while it is served.

There are three passes, each with a mark in `meta`: the row that it has reached, and the row where it ends. A part is
computed outside any transaction; its effect and the new mark are committed together.

reread:1      messages get the marks of secrets and of requests not to remember
reread:2      conclusions that the reader would not make any more are retired; the others supersede and are superseded
reread:3:W    messages of workspace W get their missing conclusions
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import bindparam, delete, exists, func, select, update

from hermes.memory_server.db.database import Database, JsonMap, Record, Tx
from hermes.memory_server.db.statements import PreparedStatement, upsert
from hermes.memory_server.db.tables import (
    collections,
    conclusion_messages,
    conclusion_versions,
    conclusions,
    jobs,
    memberships,
    message_vectors,
    messages,
    meta,
    scope_sessions,
    sessions,
    tombstones,
    workspaces,
)
from hermes.memory_server.embedder import Embedder
from hermes.memory_server.engine.conclusions import mark_collection_changed, trim_card
from hermes.memory_server.engine.departures import READ_ALL_AGAIN, begin_generation, note_departed
from hermes.memory_server.engine.derive import Statement, embed_statements, read_statements, remember
from hermes.memory_server.engine.dreams import REREAD, find_reports, report_changes, undo_report
from hermes.memory_server.engine.job_kinds import RereadingJob
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.sentences import is_kept, message_traits, read_message
from hermes.memory_server.engine.standing_kinds import standing_kind
from hermes.memory_server.engine.truth import LIVE, happened_at, release, settle
from hermes.memory_server.engine.workspaces import get_workspace, resolve
from hermes.ranking.traits import CONFIDENTIAL, UNWANTED
from hermes.ranking.words import split_speaker

PREFIX, MARKS, REVIEW, MESSAGES = "reread:", "reread:1", "reread:2", "reread:3:"
PART_ROWS = {MARKS: 100, REVIEW: 30}
MESSAGES_PER_PART = 30
REST_FACTOR = 3.0
"""The pause after a part, as a multiple of its duration, because clients come first."""
MAX_SOURCE_MESSAGES = 20
"""The number of a conclusion's messages that are read."""
MAX_SAMPLE_MESSAGES, MAX_SAMPLE_SENTENCES = 300, 10
MARKED_PLACE = select(messages.c.workspace_id).where(messages.c.id == bindparam("marked_id")).scalar_subquery()
SET_TRAITS = PreparedStatement(
    update(message_vectors)
    .where(message_vectors.c.workspace_id == MARKED_PLACE, message_vectors.c.message_id == bindparam("marked_id"))
    .values(traits=bindparam("found"))
)
COUNTS = ("retired", "added", "undone")
COUNTED = "rereading_"


@dataclass(frozen=True, slots=True)
class Judged:
    """A conclusion of an earlier version, as this reader judges it."""

    id: int
    is_made: bool
    is_settled: bool
    standing: str | None
    happened_at: int | None


@dataclass(frozen=True, slots=True)
class RereadPart:
    """A computed part of a pass: the mark at which it begins, its last row, and the results."""

    name: str
    mark: str
    last: int
    until: int
    traits: Sequence[tuple[int, int]] = ()
    judged: Sequence[Judged] = ()
    statements: Sequence[Statement] = field(default=())


async def prepare_part(database: Database, embedder: Embedder) -> RereadPart | None:
    """Return the next part, computed, or None."""
    part = await database.read(_work_out)
    if part is not None and part.statements:
        part = replace(part, statements=await embed_statements(embedder, part.statements))
    return part


def commit_part(tx: Tx, part: RereadPart | None, at: int) -> bool:
    """Store a part and move its mark, unless another process moved it. Return True if more is left."""
    if part is None:
        return False
    known = tx.execute(select(meta.c.value).where(meta.c.name == part.name)).scalar_one_or_none()
    if known == part.mark:
        if part.name == MARKS:
            _mark(tx, part.traits)
        elif part.name == REVIEW:
            _review(tx, part.judged, at)
        else:
            _conclude(tx, part.statements, at)
        if part.last < part.until:
            tx.execute(update(meta).where(meta.c.name == part.name).values(value=f"{part.last}:{part.until}"))
        else:
            _finish(tx, part.name)
    return _next_mark(tx) is not None


def _next_mark(tx: Tx) -> Record | None:
    found = select(meta).where(meta.c.name.startswith(PREFIX)).order_by(meta.c.name).limit(1)
    return tx.execute(found).first()


def _finish(tx: Tx, name: str) -> None:
    tx.execute(delete(meta).where(meta.c.name == name))
    if name == MARKS:  # cached messages have no marks yet
        for workspace in tx.execute(select(workspaces.c.id)).scalars().all():
            note_departed(tx, workspace, [READ_ALL_AGAIN])
            begin_generation(tx, workspace)


def _work_out(tx: Tx) -> RereadPart | None:
    mark = _next_mark(tx)
    if mark is None:
        return None
    after, until = map(int, mark.value.split(":"))
    most = PART_ROWS.get(mark.name, MESSAGES_PER_PART)
    table = conclusions if mark.name == REVIEW else messages
    inside = [table.c.id > after, table.c.id <= until]
    if mark.name.startswith(MESSAGES):
        inside.append(messages.c.workspace_id == int(mark.name.removeprefix(MESSAGES)))
    rows = tx.execute(select(table).where(*inside).order_by(table.c.id).limit(most)).all()
    last = rows[-1].id if len(rows) == most else until
    if mark.name == MARKS:
        found = [(row.id, message_traits(row.content)) for row in rows]
        return RereadPart(mark.name, mark.value, last, until, [one for one in found if one[1] & MARKED])
    if mark.name == REVIEW:
        return RereadPart(mark.name, mark.value, last, until, judged=_judge(tx, rows))
    statements = read_statements(tx, [row.id for row in rows])
    return RereadPart(mark.name, mark.value, last, until, statements=statements)


MARKED = UNWANTED | CONFIDENTIAL


def _mark(tx: Tx, found: Iterable[tuple[int, int]]) -> None:
    SET_TRAITS.run_many(tx, ({"marked_id": message_id, "found": traits} for message_id, traits in found))


def _judge(tx: Tx, rows: Sequence[Record]) -> list[Judged]:
    """Return this reader's judgement of the explicit conclusions. Edited ones, and those without messages, are kept."""
    rows = [row for row in rows if row.level == "explicit" and row.deleted_at is None and row.retired_at is None]
    ids = [row.id for row in rows]
    edited = select(conclusion_versions.c.conclusion_id).where(conclusion_versions.c.conclusion_id.in_(ids))
    stays = set(tx.execute(edited).scalars())
    linked = select(conclusion_messages.c.conclusion_id, messages.c.content)
    linked = linked.join(messages, messages.c.id == conclusion_messages.c.message_id)
    texts: dict[int, list[str]] = defaultdict(list)
    for found in tx.execute(linked.where(conclusion_messages.c.conclusion_id.in_(ids))):
        texts[found.conclusion_id].append(found.content)
    return [
        Judged(
            row.id,
            row.id in stays or row.id not in texts or _is_made(row.content, texts[row.id][:MAX_SOURCE_MESSAGES]),
            row.learnt_at is not None,
            standing_kind(row.content),
            happened_at(row.content, row.created_at),
        )
        for row in rows
    ]


def _is_made(content: str, texts: Iterable[str]) -> bool:
    """Return True if the reader keeps a sentence of the messages that equals, contains or is part of the conclusion."""
    own = split_speaker(content)[1].strip().casefold()
    kept = (one.text.casefold() for text in texts for one in read_message(text) if is_kept(one))
    return any(own in text or text in own for text in kept)


def _review(tx: Tx, judged: Sequence[Judged], at: int) -> None:
    for one in judged:
        if one.is_made:
            changed = (
                {"standing": one.standing}
                if one.is_settled
                else {"standing": one.standing, "happened_at": one.happened_at}
            )
            tx.execute(update(conclusions).where(conclusions.c.id == one.id).values(changed))
    _retire(tx, [one.id for one in judged if not one.is_made], at)
    for one in judged:
        if one.is_made and not one.is_settled:
            settle(tx, one.id, at)


def _retire(tx: Tx, ids: Sequence[int], at: int) -> None:
    edited = exists().where(conclusion_versions.c.conclusion_id == conclusions.c.id)
    still = (conclusions.c.id.in_(ids), LIVE, ~edited)
    rows = tx.execute(select(conclusions).where(*still)).all()
    if not rows:
        return
    retired = [row.id for row in rows]
    tx.execute(update(conclusions).where(conclusions.c.id.in_(retired)).values(retired_at=at, retired_why=REREAD))
    release(tx, retired, at)
    for collection in sorted({row.collection_id for row in rows}):
        own = [row for row in rows if row.collection_id == collection]
        report = [{"id": row.public_id, "why": REREAD} for row in own]
        report_changes(tx, own[0].workspace_id, collection, [], report, at, REREAD)
        mark_collection_changed(tx, collection)
        trim_card(tx, collection)
    _count(tx, "retired", len(rows))


def _conclude(tx: Tx, statements: Sequence[Statement], at: int) -> None:
    """Store the missing conclusions of messages, for their observers."""
    before = tx.execute(select(func.coalesce(func.max(conclusions.c.id), 0))).scalar_one()
    by_place: dict[tuple[int, int], list[Statement]] = defaultdict(list)
    for said in statements:
        by_place[said.message.session_id, said.message.peer_id].append(said)
    for (session, author), own in by_place.items():
        if observers := _observers(tx, session, author):
            remember(tx, own[0].message.workspace_id, observers, own, at)
    query = select(conclusions.c.public_id, conclusions.c.collection_id, conclusions.c.workspace_id)
    rows = tx.execute(query.where(conclusions.c.id > before)).all()
    for collection in sorted({row.collection_id for row in rows}):
        added = [row for row in rows if row.collection_id == collection]
        report_changes(tx, added[0].workspace_id, collection, [row.public_id for row in added], [], at, REREAD)
    _count(tx, "added", len(rows))


def _observers(tx: Tx, session_id: int, author: int) -> list[int]:
    """Return the peers that learn from an author's messages in a session: nobody if nothing was ever concluded about
    the author, such as an agent whose replies are not reasoned about.
    """
    learnt = select(conclusions.c.id).join(collections, collections.c.id == conclusions.c.collection_id)
    learnt = learnt.join(conclusion_messages, conclusion_messages.c.conclusion_id == conclusions.c.id)
    own = (collections.c.observed_id == author, collections.c.observer_id == author, conclusions.c.level == "explicit")
    if tx.execute(learnt.where(*own).limit(1)).first() is None:
        return []
    layers = select(sessions.c.configuration, workspaces.c.configuration.label("around"), sessions.c.is_active)
    place = tx.execute(layers.join(workspaces).where(sessions.c.id == session_id)).one()
    if not place.is_active or not resolve(place.around, place.configuration).reasoning:
        return []
    watching = (memberships.c.session_id == session_id, memberships.c.left_seq.is_(None), memberships.c.observe_others)
    others = tx.execute(select(memberships.c.peer_id).where(*watching)).scalars()
    scopes = tx.execute(select(scope_sessions.c.scope_id).where(scope_sessions.c.session_id == session_id)).scalars()
    return sorted({author, *others, *scopes})


def _count(tx: Tx, name: str, number: int) -> None:
    if number:
        key = COUNTED + name
        known = tx.execute(select(meta.c.value).where(meta.c.name == key)).scalar_one_or_none()
        upsert(tx, meta, ("name",), {"name": key, "value": str(int(known or 0) + number)})


def read_counts(tx: Tx) -> dict[str, int]:
    """Return how much rereading retired, added and undid in all workspaces, and how many rows are left."""
    found = {row.name: row.value for row in tx.execute(select(meta)).all()}
    counts = {name: int(found.get(COUNTED + name, 0)) for name in COUNTS}
    ranges = [value.split(":") for name, value in found.items() if name.startswith(PREFIX)]
    return counts | {"left": sum(int(until) - int(after) for after, until in ranges)}


def begin_rereading(tx: Tx, workspace: str, at: int) -> None:
    """Queue rereading all messages of a workspace. A running one starts again."""
    place = get_workspace(tx, workspace)
    newest = tx.execute(select(func.max(messages.c.id)).where(messages.c.workspace_id == place.id)).scalar_one()
    if newest is None:
        return
    upsert(tx, meta, ("name",), {"name": f"{MESSAGES}{place.id}", "value": f"0:{newest}"})
    waiting = select(jobs.c.id).where(jobs.c.kind == RereadingJob.kind, jobs.c.state.in_(("pending", "running")))
    if tx.execute(waiting.limit(1)).first() is None:
        add_job(tx, RereadingJob(), RereadingJob.kind, at, 0)


def undo_part(tx: Tx, workspace: str, at: int) -> bool:
    """Stop rereading a workspace, and undo one of its reports. Return True if more are left."""
    place = get_workspace(tx, workspace)
    tx.execute(delete(meta).where(meta.c.name == f"{MESSAGES}{place.id}"))
    reports = find_reports(tx, place.id, REREAD, 2)
    if reports:
        undo_report(tx, reports[0], at)
        _count(tx, "undone", 1)
    return len(reports) > 1


def preview(tx: Tx, workspace: str) -> JsonMap:
    """Return a preview of rereading: the number of messages, the conclusions that the newest would add, and whether
    anything was deleted in the workspace that may then be concluded again.
    """
    place = get_workspace(tx, workspace)
    own = select(messages.c.id).where(messages.c.workspace_id == place.id)
    newest = tx.execute(own.order_by(messages.c.id.desc()).limit(MAX_SAMPLE_MESSAGES)).scalars().all()
    new = [said for said in read_statements(tx, newest) if not _is_concluded(tx, said)]
    texts = dict.fromkeys(said.content for said in reversed(new))
    return {
        "messages": tx.execute(select(func.count()).select_from(own.subquery())).scalar_one(),
        "looked_at": len(newest),
        "would_add": len(texts),
        "examples": list(texts)[:MAX_SAMPLE_SENTENCES],
        "was_deleted": _was_deleted(tx, place),
        **read_counts(tx),
    }


def _is_concluded(tx: Tx, said: Statement) -> bool:
    if not _observers(tx, said.message.session_id, said.message.peer_id):
        return True
    known = select(conclusions.c.id).join(collections, collections.c.id == conclusions.c.collection_id)
    texts = {said.content, said.whole}  # a stored sentence is not stored again as clauses
    own = (collections.c.observed_id == said.message.peer_id, conclusions.c.content.in_(texts))
    return tx.execute(known.where(*own).limit(1)).first() is not None


def _was_deleted(tx: Tx, place: Record) -> bool:
    hidden = select(collections.c.id).where(collections.c.workspace_id == place.id, collections.c.generation > 0)
    buried = select(tombstones.c.hash).where(tombstones.c.workspace_id == place.id)
    removed = select(sessions.c.id).where(sessions.c.workspace_id == place.id, sessions.c.removals > 0)
    return any(tx.execute(query.limit(1)).first() is not None for query in (hidden, buried, removed))
