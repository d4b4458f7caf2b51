"""Deletion of the messages of a deleted conversation, or of retracted messages, with the conclusions from them
alone; a retraction also deletes what the agent's tools concluded meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from hermes.honcho.acts import Conclude, decode_act
from hermes.honcho.attempt import Attempt
from hermes.honcho.conclusions import remove_conclusion
from hermes.honcho.messages import MESSAGES_PER_REQUEST, SESSION, TALK_OF, delete_message, list_messages
from hermes.honcho.wire import items_of, read_time
from hermes.memory.provider import Delivered, Later, Outcome, Parked
from hermes.types import Json

MAX_PAGES = 100
NO_SESSION = Delivered("notes belong to no conversation")


async def forget_conversation(attempt: Attempt, data: Mapping[str, Json]) -> Outcome:
    """Delete a conversation's messages; other conversations in the same Honcho session stay. Raises Failure; earlier
    deletions stand."""
    session = attempt.target.session
    if session is None:
        return NO_SESSION
    filters = {"metadata": {SESSION: str(data["session_id"])}}
    deleted = 0
    for one in [session, *await _talks_of(attempt, session)]:
        while found := await list_messages(attempt, one, f"size={MESSAGES_PER_REQUEST}", filters):
            if not attempt.link.deletes_messages:
                count = f"{len(found)} or more" if len(found) == MESSAGES_PER_REQUEST else str(len(found))
                return Parked(f"this server cannot delete messages: {count} stay in its session {one}")
            for message in found:
                await delete_message(attempt, one, str(message["id"]))
            deleted += len(found)
    return _once_more(attempt, data) or Delivered(f"{deleted} messages were deleted")


async def retract_messages(attempt: Attempt, data: Mapping[str, Json]) -> Outcome:
    """Delete retracted messages and the tools' conclusions. Raises Failure; earlier deletions stand."""
    session = attempt.target.session
    if session is None:
        return NO_SESSION
    removed, kept = await _remove_concluded(attempt, data["entries"])
    found = [
        (one, message)
        for one in ([session, *await _talks_of(attempt, session)] if data["times"] else [])
        for message in await _find(attempt, one, data["session_id"], data["times"])
    ]
    if found and not attempt.link.deletes_messages:
        kept.append(f"this server cannot delete messages: {len(found)} of them stay in its session {session}")
    else:
        for one, message in found:
            await delete_message(attempt, one, message)
    if later := _once_more(attempt, data):
        return later
    if kept:
        return Parked("; ".join(kept))
    return Delivered(f"{len(found)} messages and {removed} conclusions were deleted")


async def _talks_of(attempt: Attempt, session: str) -> list[str]:
    """Return the sessions of our agent with other agents beside a session of people."""
    response = await attempt.ask(
        "POST", f"sessions/list?size={MESSAGES_PER_REQUEST}", {"filters": {"metadata": {TALK_OF: session}}}
    )
    return [str(one["id"]) for one in items_of(response, "sessions")]


def _once_more(attempt: Attempt, data: Mapping[str, Json]) -> Later | None:
    """Return Later if messages sent earlier may still arrive, so that the search must be repeated."""
    wait = attempt.doubts.seconds_for_all(data.get("may_arrive") or {})
    return Later("some of it may still arrive", after=wait) if wait > 0 else None


async def _find(attempt: Attempt, session: str, session_id: str, times: Sequence[float]) -> list[str]:
    """Return the ids of the messages with these creation times, which late deliveries keep too."""
    wanted = {datetime.fromtimestamp(at, UTC) for at in times}
    between = {"gte": min(wanted).isoformat(), "lte": max(wanted).isoformat()}
    filters = {"AND": [{"metadata": {SESSION: session_id}}, {"created_at": between}]}
    found: list[str] = []
    for page in range(1, MAX_PAGES + 1):
        messages = await list_messages(attempt, session, f"size={MESSAGES_PER_REQUEST}&page={page}", filters)
        found += [str(one["id"]) for one in messages if read_time(one.get("created_at"), "message") in wanted]
        if len(messages) < MESSAGES_PER_REQUEST:
            break
    return found


async def _remove_concluded(attempt: Attempt, entries: Sequence[Mapping[str, Json]]) -> tuple[int, list[str]]:
    """Delete the tools' conclusions; return their number, and a sentence for each change that cannot be undone."""
    removed, kept = 0, list[str]()
    for entry in entries:
        try:
            act = decode_act(entry["data"])
        except msgspec.ValidationError:
            continue  # an entry of another version, which was put aside
        if isinstance(act, Conclude) and entry["note"]:
            await remove_conclusion(attempt, str(entry["note"]))
            removed += 1
        elif not isinstance(act, Conclude):
            kept.append("a card or conclusion that the agent changed meanwhile stays as it is")
    return removed, kept
