"""Forgetting what was said: the messages of a conversation that was deleted here, or those that a person took back, go
with what was learnt from them alone; with the latter also what the agent's tools concluded while they were said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from hermes.honcho.acts import Conclude, decode_act
from hermes.honcho.attempt import Attempt
from hermes.honcho.conclusions import remove_conclusion
from hermes.honcho.messages import AT_ONCE, SESSION, TALK_OF, delete_message, list_messages
from hermes.honcho.wire import items_of, read_time
from hermes.memory.provider import Delivered, Later, Outcome, Parked
from hermes.types import Json

MOST_PAGES = 100
NO_SESSION = Delivered("notes belong to no conversation")


async def forget_conversation(attempt: Attempt, data: Mapping[str, Json]) -> Outcome:
    """Delete what was written of a conversation. Other conversations in the same Honcho session stay. Raises Failure;
    what was deleted until then is gone."""
    session = attempt.target.session
    if session is None:
        return NO_SESSION
    filters = {"metadata": {SESSION: str(data["session_id"])}}
    deleted = 0
    for one in [session, *await _talks_of(attempt, session)]:
        while found := await list_messages(attempt, one, f"size={AT_ONCE}", filters):
            if not attempt.link.deletes_messages:
                count = f"{len(found)} or more" if len(found) == AT_ONCE else str(len(found))
                return Parked(f"this server cannot delete messages: {count} stay in its session {one}")
            for message in found:
                await delete_message(attempt, one, str(message["id"]))
            deleted += len(found)
    return _once_more(attempt, data) or Delivered(f"{deleted} messages were deleted")


async def take_back(attempt: Attempt, data: Mapping[str, Json]) -> Outcome:
    """Delete these messages and conclusions. Raises Failure; what was deleted until then is gone."""
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
    """Return the sessions of our agent and other agents beside a session of people."""
    told = await attempt.ask("POST", f"sessions/list?size={AT_ONCE}", {"filters": {"metadata": {TALK_OF: session}}})
    return [str(one["id"]) for one in items_of(told, "sessions")]


def _once_more(attempt: Attempt, data: Mapping[str, Json]) -> Later | None:
    """Whether it must be looked again, since something may still arrive that was sent before."""
    wait = attempt.doubts.wait_for_all(data.get("may_arrive") or {})
    return Later("some of it may still arrive", after=wait) if wait > 0 else None


async def _find(attempt: Attempt, session: str, session_id: str, times: Sequence[float]) -> list[str]:
    """The ids of the messages that were said then: a message has that time, also one that was told later."""
    wanted = {datetime.fromtimestamp(at, UTC) for at in times}
    between = {"gte": min(wanted).isoformat(), "lte": max(wanted).isoformat()}
    filters = {"AND": [{"metadata": {SESSION: session_id}}, {"created_at": between}]}
    found: list[str] = []
    for page in range(1, MOST_PAGES + 1):
        messages = await list_messages(attempt, session, f"size={AT_ONCE}&page={page}", filters)
        found += [str(one["id"]) for one in messages if read_time(one.get("created_at"), "message") in wanted]
        if len(messages) < AT_ONCE:
            break
    return found


async def _remove_concluded(attempt: Attempt, entries: Sequence[Mapping[str, Json]]) -> tuple[int, list[str]]:
    """Delete what the agent's tools concluded: how many there were, and in words what else they did, which stays."""
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
