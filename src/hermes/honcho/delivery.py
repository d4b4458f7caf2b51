"""Delivery to Honcho: the entries of one lane become messages and conclusions, in order and exactly once.

said, reply  ──> messages of the session, under the speaker's peer
note         ──> a conclusion about the note's owner; deleted together with the note
own          ──> changes by the agent's tools (`acts`)
forget       ──> deletes the messages of a deleted conversation, if the server supports that
undo         ──> deletes retracted messages, with conclusions that the agent's tools wrote meanwhile
correct      ──> corrects every copy of a fact, or deletes it with its source messages

Deletion of the messages of a deleted conversation, or of retracted messages, with the conclusions from them
alone; a retraction also deletes what the agent's tools concluded meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby

import msgspec

from hermes.errors import ProviderError
from hermes.honcho import keys
from hermes.honcho.addresses import MESSAGES, EntryTarget, agent_session, move_out
from hermes.honcho.attempt import Attempt, Doubts
from hermes.honcho.conclusions import (
    Conclude,
    Remove,
    Saying,
    SetCard,
    TakeFiles,
    Whom,
    conclude,
    correct_fact,
    decode_act,
    remove_conclusion,
    write_note,
)
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.failures import Failure
from hermes.honcho.files import Files, take_files
from hermes.honcho.links import Links
from hermes.honcho.messages import MESSAGES_PER_REQUEST, SESSION, TALK_OF, delete_message, list_messages, write_messages
from hermes.honcho.names import card_path
from hermes.honcho.wire import DeliveryTimeouts, items_of, read_time
from hermes.memory.provider import DeadLetter, Delivered, Entry, Host, Later, Outcome, Speaker
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
                return DeadLetter(f"this server cannot delete messages: {count} stay in its session {one}")
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
        return DeadLetter("; ".join(kept))
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
            continue  # an entry of another version, a dead letter
        if isinstance(act, Conclude) and entry["note"]:
            await remove_conclusion(attempt, str(entry["note"]))
            removed += 1
        elif not isinstance(act, Conclude):
            kept.append("a card or conclusion that the agent changed meanwhile stays as it is")
    return removed, kept


SWITCHED_OFF = "Honcho is switched off"
NO_AGENTS = "`a2aSessions` is off: messages of other agents are not stored"
DELETING_KINDS = ("forget", "undo")
SWITCHED_OFF_RETRY_SECONDS = 60.0
"""How soon a switched-off Honcho is checked again."""


class Delivery:
    """Delivers for one plugin. Any number of lanes may be delivered concurrently."""

    def __init__(
        self,
        host: Host,
        links: Links,
        configuration: Callable[[], HonchoConfiguration],
        timeouts: DeliveryTimeouts,
        meet: Callable[[Speaker, str | None], None],
    ) -> None:
        self._host = host
        self._links = links
        self._configuration = configuration
        self._doubts = Doubts(host.clock, timeouts)
        self._files = Files(host)
        self._meet = meet

    async def deliver(self, entries: Sequence[Entry], until: float) -> list[Outcome]:
        """Return outcomes for the first entries, possibly not all. No request outlives `until`."""
        self._doubts.mark_taken(entries)
        outcomes = await self._try(entries, until)
        if self._links.has_moved and isinstance(outcomes[-1], Later):
            outcomes[-1:] = await self._try(entries[len(outcomes) - 1 :], until)
        return outcomes

    async def _try(self, entries: Sequence[Entry], until: float) -> list[Outcome]:
        try:
            config = self._configuration()
            if config.get(keys.ENABLED) is False:
                return [Later(SWITCHED_OFF, SWITCHED_OFF_RETRY_SECONDS, everyone=True)]
            for entry in entries:
                if entry.speaker is not None:
                    self._meet(entry.speaker, EntryTarget.from_json(entry.address).came_by)
            link = await self._links.link(until)
        except ProviderError as error:
            return [Later(error.line(), everyone=True)]
        except Failure as failure:
            return [Later(str(failure), everyone=True)]
        outcomes: list[Outcome] = []
        for group in _groups(entries):
            target = EntryTarget.from_json(group[0].address)
            if group[0].kind not in DELETING_KINDS:  # what was written there is also deleted there
                target = move_out(config, target)
            if (agent := _agent_of(group[0])) is not None and target.session is not None:
                if not config.get(keys.A2A_SESSIONS):
                    outcomes += [Delivered(NO_AGENTS)] * len(group)
                    continue
                target = agent_session(target, agent)
            attempt = Attempt(link, config, self._doubts, self._host, until, target)
            try:
                is_said = group[0].kind in MESSAGES
                done = await write_messages(attempt, group) if is_said else [await _write(attempt, group[0])]
            except Failure as failure:
                done = [failure.outcome()]
            outcomes += done
            if config.get(keys.SAVE_MESSAGES):
                await self._files.offer(group[0], target, done[-1])
            if isinstance(done[-1], Later) or len(done) < len(group):
                break
        return outcomes


def _groups(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Yield messages with the same destination together, and every other entry alone, in order."""
    for is_message, run in groupby(entries, lambda entry: entry.kind in MESSAGES):
        if not is_message:
            yield from ([entry] for entry in run)
            continue
        for _, same in groupby(run, lambda entry: (EntryTarget.from_json(entry.address), _agent_of(entry))):
            yield list(same)


def _agent_of(entry: Entry) -> Speaker | None:
    """Return the other agent that sent a message or receives a reply; None for people."""
    is_agents = entry.kind in MESSAGES and entry.speaker is not None and entry.speaker.is_agent
    return entry.speaker if is_agents else None


async def _write(attempt: Attempt, entry: Entry) -> Outcome:
    if entry.kind == "note":
        return await write_note(attempt, entry)
    if entry.kind == "forget":
        return await forget_conversation(attempt, entry.data)
    if entry.kind == "undo":
        return await retract_messages(attempt, entry.data)
    if entry.kind == "correct":
        return await correct_fact(attempt, entry)
    if entry.kind != "own":
        return DeadLetter(f"Honcho does not support entries of the kind {entry.kind}")
    try:
        act = decode_act(entry.data)
    except msgspec.ValidationError as error:
        return DeadLetter(f"the entry is of an incompatible version: {error}")
    match act:
        case Conclude(content, about):
            return await conclude(attempt, entry, Saying.about(attempt, _observed(attempt, entry, about), content))
        case Remove(conclusion):
            return await remove_conclusion(attempt, conclusion)
        case TakeFiles():
            return await take_files(attempt, entry)
        case SetCard(lines, about):
            return await _set_card(attempt, _observed(attempt, entry, about), lines)


def _observed(attempt: Attempt, entry: Entry, about: Whom) -> str:
    return attempt.target.ai_peer if about == "ai" else attempt.peer_of(entry.speaker)


async def _set_card(attempt: Attempt, observed: str, lines: list[str]) -> Outcome:
    """Replace a card. Idempotent."""
    observer = attempt.observer_of(observed)
    await attempt.link.members.ensure_peers(attempt.target.workspace, sorted({observer, observed}), attempt.until)
    await attempt.ask("PUT", card_path(observer, observed), {"peer_card": lines})
    return Delivered()
