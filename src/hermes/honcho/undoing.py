"""Taking back what was said: messages that a person took back go, with what was learnt from them alone, and so does
what the agent's tools concluded while they were said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from hermes.honcho.acts import Conclude, decode_act
from hermes.honcho.addresses import EntryTarget
from hermes.honcho.attempt import Attempt
from hermes.honcho.conclusions import remove_conclusion
from hermes.honcho.failures import Unanswered
from hermes.honcho.forgetting import delete_message
from hermes.honcho.members import session_path
from hermes.honcho.messages import AT_ONCE, SESSION, list_messages
from hermes.memory.provider import Delivered, Outcome, Parked
from hermes.types import Json

MOST_PAGES = 100


async def take_back(attempt: Attempt, target: EntryTarget, data: Mapping[str, Json]) -> Outcome:
    """Delete these messages of a conversation and these conclusions. Raises Failure; what was deleted until then is
    gone."""
    if target.session is None:
        return Delivered("notes belong to no conversation")
    removed, kept = await _remove_concluded(attempt, target, data["entries"])
    found = await _find(attempt, target, data["session_id"], data["times"]) if data["times"] else []
    if found and not attempt.link.deletes_messages:
        kept.append(f"this server cannot delete messages: {len(found)} of them stay in its session {target.session}")
    elif found:
        for message in found:
            await delete_message(attempt, target, message)
    if kept:
        return Parked("; ".join(kept))
    return Delivered(f"{len(found)} messages and {removed} conclusions were deleted")


async def _find(attempt: Attempt, target: EntryTarget, session_id: str, times: Sequence[float]) -> list[str]:
    """The ids of the messages that were said then. A message has the time at which it was said, also one that was told
    later."""
    wanted = {datetime.fromtimestamp(at, UTC) for at in times}
    between = {"gte": min(wanted).isoformat(), "lte": max(wanted).isoformat()}
    filters = {"AND": [{"metadata": {SESSION: session_id}}, {"created_at": between}]}
    path = f"{session_path(target.workspace, str(target.session))}/messages/list?size={AT_ONCE}"
    found: list[str] = []
    for page in range(1, MOST_PAGES + 1):
        messages = await list_messages(attempt, f"{path}&page={page}", filters)
        found += [str(one["id"]) for one in messages if _time(one.get("created_at")) in wanted]
        if len(messages) < AT_ONCE:
            break
    return found


def _time(given: Json) -> datetime:
    """When a message was said, as a server tells it. Raises Unanswered for what is no time."""
    try:
        found = datetime.fromisoformat(str(given))
    except ValueError:
        raise Unanswered(f"the server tells no time of a message: {str(given)[:100]}") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


async def _remove_concluded(
    attempt: Attempt, target: EntryTarget, entries: Sequence[Mapping[str, Json]]
) -> tuple[int, list[str]]:
    """Delete what the agent's tools concluded: how many there were, and in words what else they did, which stays."""
    removed, kept = 0, list[str]()
    for entry in entries:
        try:
            act = decode_act(entry["data"])
        except msgspec.ValidationError:
            continue  # an entry of another version, which was put aside
        if isinstance(act, Conclude) and entry["note"]:
            await remove_conclusion(attempt, target, str(entry["note"]))
            removed += 1
        elif not isinstance(act, Conclude):
            kept.append("a card or conclusion that the agent changed meanwhile stays as it is")
    return removed, kept
