"""Queue the background work that new messages cause: derivation of conclusions, and due summaries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, select

from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import scope_sessions, workspaces
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.settings import resolve

NewMessages = Mapping[int, Sequence[tuple[int, JsonMap]]]
"""Per author: the ids of the messages, and the configuration that each was sent with."""
MESSAGES_PER_JOB = 10
"""The number of messages in one job: a job holds the write lock while it stores its results."""
SCOPES = PreparedStatement(
    select(scope_sessions.c.scope_id).where(scope_sessions.c.session_id == bindparam("session_id"))
)


def queue_reasoning(
    tx: Tx, session: Record, members: Mapping[int, Record], count: int, new: NewMessages, at: int
) -> None:
    """Queue the work that these messages, the last of `count`, cause."""
    workspace = session.workspace_configuration
    silent = [row.scope_id for row in SCOPES.rows(tx, session_id=session.id)]
    for author, given in new.items():
        wanted = [
            message_id
            for message_id, configuration in given
            if resolve(workspace, session.configuration, configuration).reasoning
        ]
        if wanted and _is_observed(members.get(author)):
            others = [peer for peer, row in members.items() if peer != author and row.observe_others]
            observers = list(dict.fromkeys([author, *others, *silent]))
            unit = f"representation:{session.workspace_id}:{session.id}:{author}"
            whose: dict[str, Any] = {"session_id": session.id, "sender_id": author, "observers": observers}
            for start in range(0, len(wanted), MESSAGES_PER_JOB):
                # A worker of an earlier version reads the observers here; ours asks the table.
                payload = {"messages": wanted[start : start + MESSAGES_PER_JOB], "observers": observers}
                add_job(tx, "representation", unit, at, session.workspace_id, payload, **whose)
    _queue_summaries(tx, session, workspace, count, sum(len(given) for given in new.values()), at)


def _is_observed(member: Record | None) -> bool:
    if member is None:
        return False
    if member.observe_me is not None:
        return bool(member.observe_me)
    return json.loads(member.configuration).get("observe_me") is not False


def requeue_summaries(tx: Tx, session: Record, at: int) -> None:
    """Queue the newest summaries that a session can have, because the earlier ones became invalid."""
    configuration = select(workspaces.c.configuration).where(workspaces.c.id == session.workspace_id)
    count = session.message_count
    _queue_summaries(tx, session, tx.execute(configuration).scalar_one(), count, count, at)


def _queue_summaries(tx: Tx, session: Record, workspace: str, count: int, added: int, at: int) -> None:
    settings = resolve(workspace, session.configuration)
    if not settings.summaries:
        return
    for kind, every in (("short", settings.short_every), ("long", settings.long_every)):
        due = count // every * every
        if due > count - added:
            unit = f"summary:{session.workspace_id}:{session.id}"
            payload = {"kind": kind, "seq": due}
            add_job(tx, "summary", unit, at, session.workspace_id, payload, session_id=session.id)
