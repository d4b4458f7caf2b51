"""The route that copies a session."""

from __future__ import annotations

from functools import partial

from fastapi import Response

from hermes.errors import StoreError
from hermes.memory_server.api import replies, wire
from hermes.memory_server.api.auth import OwnSession
from hermes.memory_server.api.once import KeptAnswer, KeyHeader, Once, asked
from hermes.memory_server.api.server import ServerDep, new_router
from hermes.memory_server.db.database import Tx
from hermes.memory_server.engine.clone import abandon_clone, begin_clone, copy_part, finish_clone
from hermes.memory_server.faults import Fault

router = new_router("sessions")


@router.post(
    "/v3/workspaces/{workspace_id}/sessions/{session_id}/clone", status_code=201, response_model=replies.Session
)
async def clone(
    workspace_id: str,
    session_id: str,
    here: ServerDep,
    _: OwnSession,
    message_id: str | None = None,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Copy a session, up to and with a message."""
    once = Once(here, asked("clone", idempotency_key, message_id), workspace_id, session_id)
    begun = await here.write(
        lambda tx: once.known(tx) or begin_clone(tx, workspace_id, session_id, message_id, here.now())
    )
    if isinstance(begun, KeptAnswer):
        return begun.response()
    copy, copied = begun, 0

    def finish(tx: Tx) -> KeptAnswer:
        if (before := once.known(tx)) is not None:  # two were asked for at once, and the other is whole
            abandon_clone(tx, copy)
            return before
        return once.keep(tx, KeptAnswer.of(wire.session(finish_clone(tx, copy, here.now())), 201))

    try:
        while copied < copy.last:
            copied = await here.write(partial(copy_part, copy=copy, after=copied))
        return (await here.write(finish)).response()
    except (Fault, StoreError):
        await here.write(lambda tx: abandon_clone(tx, copy))
        raise
