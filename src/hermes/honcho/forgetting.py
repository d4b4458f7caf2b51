"""Forgetting a conversation that was deleted here: its messages go, and with them what was learnt from them alone."""

from __future__ import annotations

from urllib.parse import quote

from hermes.honcho.addresses import EntryTarget
from hermes.honcho.attempt import Attempt
from hermes.honcho.failures import NOT_FOUND, Refusal
from hermes.honcho.members import session_path, workspace_path
from hermes.honcho.messages import AT_ONCE, SESSION, list_messages
from hermes.memory.provider import Delivered, Outcome, Parked


async def forget_conversation(attempt: Attempt, target: EntryTarget, session_id: str) -> Outcome:
    """Delete what was written of a conversation. Other conversations in the same Honcho session stay. Raises Failure;
    what was deleted until then is gone."""
    if target.session is None:
        return Delivered("notes belong to no conversation")
    path = f"{session_path(target.workspace, target.session)}/messages"
    filters = {"metadata": {SESSION: session_id}}
    deleted = 0
    while found := await list_messages(attempt, f"{path}/list?size={AT_ONCE}", filters):
        if not attempt.link.deletes_messages:
            count = f"{len(found)} or more" if len(found) == AT_ONCE else str(len(found))
            return Parked(f"this server cannot delete messages: {count} stay in its session {target.session}")
        for message in found:
            await delete_message(attempt, target, str(message["id"]))
        deleted += len(found)
    return Delivered(f"{deleted} messages were deleted")


async def delete_message(attempt: Attempt, target: EntryTarget, message: str) -> None:
    """Delete a message by its id, where the server can do that. Raises Failure."""
    session = quote(str(target.session), safe="")
    path = f"{workspace_path(target.workspace)}/ext/sessions/{session}/messages/{quote(message, safe='')}"
    try:
        await attempt.ask("DELETE", path)
    except Refusal as refusal:
        if refusal.status != NOT_FOUND:  # someone was faster
            raise
