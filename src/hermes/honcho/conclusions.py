"""Conclusions: written and deleted for the agent's tools and for changes of the built-in notes.

Outbox entries that the plugin itself creates: changes made by the agent's tools, and the import of the owner's
files.

Queue one with `Host.put(…, encode_act(act), speaker)`. The entry's outcome is its result: for a conclusion,
`Delivered.note` holds the id.

Corrections and deletions of facts by a person, applied to every copy: each observer has its own.

Our own server edits a conclusion in place and keeps its history. On any other server the new conclusion is written
before the old one is deleted, so that an interruption never loses both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from hermes.honcho.attempt import Attempt
from hermes.honcho.facts import strip_speaker
from hermes.honcho.failures import NOT_FOUND_STATUS, Refusal, Unanswered
from hermes.honcho.messages import delete_message
from hermes.honcho.names import card_path, digest, in_path
from hermes.honcho.wire import items_of, read_time
from hermes.memory.provider import DeadLetter, Delivered, Entry, Later, Outcome
from hermes.types import Json

MAX_CLOCK_SKEW_SECONDS = 60.0
"""Allowed clock difference between this machine and the server."""
UNDECIDED = "{} conclusions on the server have this text, and it is unknown which one is meant: {}"
GONE = Delivered("it was already deleted")


class Saying(Struct, frozen=True):
    """The text of a conclusion, its subject, and the peer whose view it belongs to."""

    content: str
    observer_id: str
    observed_id: str
    session_id: str | None = None

    @classmethod
    def about(cls, attempt: Attempt, observed: str, content: str) -> Saying:
        text = content.replace("\0", "").strip()
        return cls(text, attempt.observer_of(observed), observed, attempt.target.session)


async def conclude(attempt: Attempt, entry: Entry, saying: Saying) -> Outcome:
    """Write a conclusion; the note of the Delivered outcome is its id. Raises Failure."""
    if not saying.content:
        return Delivered("it had no text")
    must = attempt.must_look(entry)
    if isinstance(must, Later):
        return must
    if must:
        found = await _find(attempt, saying, since=entry.at)
        if found:
            return _decided(found)
        attempt.doubts.mark_absent([entry])
    body = {"conclusions": [{**asdict(saying), "hermes_key": entry.key}]}
    await _set_up(attempt, saying)
    try:
        response = await attempt.write([entry], "conclusions", body)
    except Refusal as refusal:
        if refusal.status != NOT_FOUND_STATUS:
            raise
        attempt.link.members.forget()  # what was set up is not there any more
        await _set_up(attempt, saying)
        response = await attempt.write([entry], "conclusions", body)
    if not isinstance(response.value, list) or len(response.value) != 1 or not isinstance(response.value[0], dict):
        raise Unanswered("the server's response lacks the id of the new conclusion")
    return Delivered(str(response.value[0].get("id", "")))


async def remove_conclusion(attempt: Attempt, conclusion: str) -> Outcome:
    """Delete a conclusion by its id. Raises Failure."""
    removed = await attempt.ask_if_there("DELETE", f"conclusions/{in_path(conclusion)}")
    return GONE if removed is None else Delivered()


async def write_note(attempt: Attempt, entry: Entry) -> Outcome:
    """Apply a change of the built-in notes: write the new conclusion, then delete the old one. Raises Failure."""
    data: Mapping[str, Json] = entry.data
    observed = attempt.peer_of(entry.speaker)
    outcome: Outcome = Delivered()
    if entry.text.strip():
        saying = Saying.about(attempt, observed, entry.text)
        outcome = await conclude(attempt, entry, saying)
        if not isinstance(outcome, Delivered):
            return outcome
        await attempt.host.keep(_kept_as(attempt, saying, data["target"]), outcome.note)
    if data["old"]:
        removed = await _remove_note(attempt, Saying.about(attempt, observed, data["old"]), data["target"])
        return outcome if isinstance(removed, Delivered) else removed
    return outcome


async def _remove_note(attempt: Attempt, old: Saying, note: str) -> Outcome:
    """Delete the conclusion of a note, found by its stored id, else by its text."""
    kept_as = _kept_as(attempt, old, note)
    conclusion = await attempt.host.kept(kept_as)
    if conclusion is None:
        found = await _find(attempt, old)
        if not found:
            return GONE
        if len(found) > 1:
            return _decided(found)
        conclusion = found[0]
    outcome = await remove_conclusion(attempt, str(conclusion))
    await attempt.host.keep(kept_as, None)
    return outcome


def _decided(found: list[str]) -> Outcome:
    """Return the outcome when these existing conclusions equal the wanted one: Delivered for one, DeadLetter for
    several."""
    if len(found) > 1:
        return DeadLetter(UNDECIDED.format(len(found), ", ".join(found[:5])))
    return Delivered(found[0])


async def _find(attempt: Attempt, saying: Saying, since: float | None = None) -> list[str]:
    """Return the ids of conclusions with the same text, observer and observed peer, written since a time."""
    filters = {name: value for name, value in asdict(saying).items() if value is not None}
    response = await attempt.ask("POST", "conclusions/list?size=100", {"filters": filters})
    same = [one for one in items_of(response, "conclusions") if one.get("content") == saying.content]
    if since is not None:
        ahead = 0.0 if response.date is None else response.date - attempt.host.clock.now()
        earliest = datetime.fromtimestamp(since + ahead - MAX_CLOCK_SKEW_SECONDS, UTC)
        same = [one for one in same if read_time(one.get("created_at"), "conclusion") >= earliest]
    return [str(one["id"]) for one in same]


async def _set_up(attempt: Attempt, saying: Saying) -> None:
    """Create the peers and the session, which a server requires before it stores a conclusion."""
    members, target = attempt.link.members, attempt.target
    peers = {saying.observer_id, saying.observed_id, target.ai_peer}
    if saying.session_id is None:
        await members.ensure_peers(target.workspace, sorted(peers), attempt.until)
    else:
        await members.join(target.workspace, saying.session_id, attempt.observing(peers), attempt.until)


def _kept_as(attempt: Attempt, saying: Saying, note: str) -> str:
    """Return the key under which the id of a note's conclusion is stored."""
    whole = "\0".join((attempt.target.workspace, saying.observer_id, saying.observed_id, note, saying.content))
    return f"note:{digest(whole, 32)}"


Whom: TypeAlias = Literal["user", "ai"]
"""The subject of an act: the entry's speaker, or the agent."""


class Conclude(msgspec.Struct, frozen=True, tag_field="act", tag="conclude"):
    """Store a sentence about someone."""

    content: str
    about: Whom = "user"


class Remove(msgspec.Struct, frozen=True, tag_field="act", tag="remove"):
    """Delete a conclusion."""

    conclusion: str


class SetCard(msgspec.Struct, frozen=True, tag_field="act", tag="card"):
    """Replace the lines of someone's card."""

    lines: list[str]
    about: Whom = "user"


class TakeFiles(msgspec.Struct, frozen=True, tag_field="act", tag="files"):
    """Send the contents of the owner's files to a session of the owner."""


Act: TypeAlias = Conclude | Remove | SetCard | TakeFiles


def encode_act(act: Act) -> Json:
    """Return the act in the form that `Host.put` takes."""
    return msgspec.to_builtins(act)


def decode_act(data: Json) -> Act:
    """Return the act in an entry's data. Raises `msgspec.ValidationError` for data of any other form."""
    act: Act = msgspec.convert(data, Act)
    return act


COPIES_PER_REQUEST = 100
MAX_ROUNDS = 100
"""Rounds of looking for copies; each handles up to COPIES_PER_REQUEST."""


async def correct_fact(attempt: Attempt, entry: Entry) -> Outcome:
    """Correct every copy of a fact, or delete it with its messages. Raises Failure; a repeated call does the rest."""
    peer, old, right = attempt.peer_of(entry.speaker), str(entry.data["old"]), entry.text
    outcome: Outcome = Delivered()
    if right and not attempt.link.edits_conclusions:
        outcome = await conclude(attempt, entry, Saying.about(attempt, peer, right))
        if not isinstance(outcome, Delivered):
            return outcome
    changed = await _change_copies(attempt, peer, old, right)
    # What holds may be there already, because an earlier attempt got so far.
    if right and not changed and attempt.link.edits_conclusions and not await _copies(attempt, peer, right):
        outcome = await conclude(attempt, entry, Saying.about(attempt, peer, right))
    for observer in sorted({attempt.target.ai_peer, peer}):
        await _change_card(attempt, observer, peer, old, right)
    return outcome


async def _change_copies(attempt: Attempt, peer: str, old: str, right: str) -> int:
    """Change or delete every conclusion with the text `old`, and return their number."""
    changed = 0
    for _ in range(MAX_ROUNDS):
        copies = await _copies(attempt, peer, old)
        for copy in copies:
            conclusion = str(copy["id"])
            if right and attempt.link.edits_conclusions:
                content = _in_place_of(str(copy["content"]), peer, right)
                await attempt.ask_if_there("PUT", f"ext/conclusions/{in_path(conclusion)}", {"content": content})
            else:
                if not right:
                    await _remove_sources(attempt, conclusion)
                await remove_conclusion(attempt, conclusion)
        changed += len(copies)
        if len(copies) < COPIES_PER_REQUEST:
            break
    return changed


async def _copies(attempt: Attempt, peer: str, text: str) -> Sequence[Mapping[str, Json]]:
    """Return the conclusions about a peer with exactly this text, in any view."""
    filters = {"observed_id": peer, "content": {"in": [text, f"{peer}: {text}"]}}
    response = await attempt.ask("POST", f"conclusions/list?size={COPIES_PER_REQUEST}", {"filters": filters})
    return items_of(response, "conclusions")


async def _remove_sources(attempt: Attempt, conclusion: str) -> None:
    """Delete the messages that a conclusion was derived from, before the conclusion: only it names them."""
    path = f"ext/conclusions/{in_path(conclusion)}/messages?size={COPIES_PER_REQUEST}"
    for _ in range(MAX_ROUNDS if attempt.link.deletes_messages else 0):
        found = await attempt.ask_if_there("GET", path)
        messages = [] if found is None else items_of(found, "messages")
        for message in messages:
            await delete_message(attempt, str(message["session_id"]), str(message["id"]))
        if len(messages) < COPIES_PER_REQUEST:
            break


async def _change_card(attempt: Attempt, observer: str, peer: str, old: str, right: str) -> None:
    """Change the lines of a card with exactly this text."""
    path = card_path(observer, peer)
    found = await attempt.ask_if_there("GET", path)
    lines = found.value.get("peer_card") if found is not None and isinstance(found.value, dict) else None
    if not isinstance(lines, list) or not any(strip_speaker(str(line), peer) == old for line in lines):
        return
    changed = [
        _in_place_of(line, peer, right) if strip_speaker(line, peer) == old else line for line in map(str, lines)
    ]
    await attempt.ask("PUT", path, {"peer_card": list(dict.fromkeys(filter(None, changed)))})


def _in_place_of(content: str, peer: str, right: str) -> str:
    """Return the new text, prefixed with the peer's name if the old one was; "" to delete."""
    return f"{peer}: {right}" if right and content.startswith(f"{peer}: ") else right
