"""The sources and earlier texts of conclusions, and corrections by a person."""

from __future__ import annotations

from sqlalchemy import func, insert, select, update

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.tables import conclusion_messages, conclusion_versions, conclusions, messages, sessions
from hermes.memory_server.engine.conclusions import (
    digest,
    drop_conclusions,
    get_conclusion,
    link_messages,
    mark_collection_changed,
    message_ids,
    select_conclusions,
    trim_card,
    twins,
)
from hermes.memory_server.engine.messages import get_message, select_messages
from hermes.memory_server.engine.paging import Paged, PageRequest, fetch_page
from hermes.memory_server.engine.standing_kinds import standing_kind
from hermes.memory_server.engine.truth import release, settle, undo_supersession
from hermes.memory_server.engine.workspaces import get_workspace
from hermes.memory_server.faults import Conflict

MAX_VERSIONS = 100
"""The number of times that one conclusion can be edited."""


def list_sources(tx: Tx, workspace: str, public_id: str, page: PageRequest) -> Paged:
    """Return a page of the messages that a conclusion comes from, in any session, the oldest first."""
    same = twins(tx, get_conclusion(tx, workspace, public_id))
    linked = select(conclusion_messages.c.message_id).where(conclusion_messages.c.conclusion_id.in_(same))
    query = select_messages().where(messages.c.id.in_(linked), sessions.c.is_active.is_(True))
    return fetch_page(tx, query, (messages.c.id,), page)


def list_concluded(tx: Tx, workspace: str, session: str, public_id: str, page: PageRequest) -> Paged:
    """Return a page of the conclusions from a message, the oldest first; each observer has its own."""
    found = get_message(tx, workspace, session, public_id)
    linked = select(conclusion_messages.c.conclusion_id).where(conclusion_messages.c.message_id == found.id)
    return fetch_page(tx, select_conclusions().where(conclusions.c.id.in_(linked)), (conclusions.c.id,), page)


def edit_conclusion(tx: Tx, workspace: str, public_id: str, content: str, vector: bytes, at: int) -> Record:
    """Replace the text of a conclusion, and keep the earlier text as a version."""
    found = get_conclusion(tx, workspace, public_id)
    if found.content == content:
        return found
    earlier = select(func.count()).where(conclusion_versions.c.conclusion_id == found.id)
    number = tx.execute(earlier).scalar_one() + 1
    if number > MAX_VERSIONS:
        raise Conflict(f"A conclusion can be edited at most {MAX_VERSIONS} times")
    version = {"conclusion_id": found.id, "number": number, "content": found.content, "replaced_at": at}
    tx.execute(insert(conclusion_versions).values(version))
    _gather_twins(tx, found, at)
    changes = {"content": content, "digest": digest(content), "vector": vector, "standing": standing_kind(content)}
    tx.execute(update(conclusions).where(conclusions.c.id == found.id).values(changes))
    release(tx, [found.id], at)
    settle(tx, found.id, at)
    mark_collection_changed(tx, found.collection_id)
    trim_card(tx, found.collection_id)
    return get_conclusion(tx, workspace, public_id)


def _gather_twins(tx: Tx, kept: Record, at: int) -> None:
    """Move the sources of equal conclusions of other sessions to this one, and delete the others."""
    others = [row_id for row_id in twins(tx, kept) if row_id != kept.id]
    if others:
        new = set(message_ids(tx, others)).difference(message_ids(tx, [kept.id]))
        drop_conclusions(tx, others, at)
        link_messages(tx, kept.id, sorted(new))


def list_versions(tx: Tx, workspace: str, public_id: str, page: PageRequest) -> Paged:
    """Return a page of a conclusion's earlier texts, the oldest first."""
    found = get_conclusion(tx, workspace, public_id)
    query = select(conclusion_versions).where(conclusion_versions.c.conclusion_id == found.id)
    return fetch_page(tx, query, (conclusion_versions.c.number,), page)


def undo_change(tx: Tx, workspace: str, public_id: str, at: int) -> Record:
    """Undo a supersession for good, so that both conclusions are current. Return the pair."""
    row = undo_supersession(tx, get_workspace(tx, workspace).id, public_id, at)
    trim_card(tx, row.collection_id)
    return row
