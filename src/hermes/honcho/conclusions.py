"""Conclusions: written once and taken back, by the agent's tools and as what the built-in notes say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

from msgspec import Struct

from hermes.honcho.addresses import EntryTarget
from hermes.honcho.attempt import Attempt
from hermes.honcho.failures import NOT_FOUND, Refusal, Unanswered
from hermes.honcho.members import workspace_path
from hermes.honcho.names import digest
from hermes.memory.provider import Delivered, Entry, Later, Outcome, Parked
from hermes.types import Json

SKEW = 60.0
"""Seconds by which a server's clock may differ from what it tells."""
UNDECIDED = "{} conclusions on the server say the same, and nobody can tell which of them this one is: {}"
GONE = Delivered("it was not there any more")


class Saying(Struct, frozen=True):
    """What a conclusion says, about whom, in whose view."""

    content: str
    observer: str
    observed: str
    session: str | None = None

    @classmethod
    def about(cls, attempt: Attempt, target: EntryTarget, observed: str, content: str) -> Saying:
        text = content.replace("\0", "").strip()
        return cls(text, attempt.observer_of(target, observed), observed, target.session)

    def filters(self) -> dict[str, Json]:
        """What it is found by."""
        pair = {"content": self.content, "observer_id": self.observer, "observed_id": self.observed}
        return pair if self.session is None else {**pair, "session_id": self.session}


async def conclude(attempt: Attempt, target: EntryTarget, entry: Entry, saying: Saying) -> Outcome:
    """Write a conclusion; the note of what was delivered is its id. Raises Failure."""
    if not saying.content:
        return Delivered("there was no text")
    must = attempt.must_look(entry)
    if isinstance(must, Later):
        return must
    if must:
        found = await _find(attempt, target, saying, since=entry.at)
        if len(found) > 1:
            return Parked(UNDECIDED.format(len(found), ", ".join(found[:5])))
        if found:
            return Delivered(found[0])
        attempt.doubts.absent([entry])
    body = {
        "content": saying.content,
        "observer_id": saying.observer,
        "observed_id": saying.observed,
        "session_id": saying.session,
        "hermes_key": entry.key,
    }
    await _set_up(attempt, target, saying)
    path = f"{workspace_path(target.workspace)}/conclusions"
    try:
        told = await attempt.write([entry], path, {"conclusions": [body]})
    except Refusal as refusal:
        if refusal.status != NOT_FOUND:
            raise
        attempt.link.members.forget()  # what was set up is not there any more
        await _set_up(attempt, target, saying)
        told = await attempt.write([entry], path, {"conclusions": [body]})
    if not isinstance(told.value, list) or len(told.value) != 1 or not isinstance(told.value[0], dict):
        raise Unanswered("the server's answer does not name the conclusion it wrote")
    return Delivered(str(told.value[0].get("id", "")))


async def remove_conclusion(attempt: Attempt, target: EntryTarget, conclusion: str) -> Outcome:
    """Delete a conclusion by its id. Raises Failure."""
    path = f"{workspace_path(target.workspace)}/conclusions/{quote(conclusion, safe='')}"
    try:
        await attempt.ask("DELETE", path)
    except Refusal as refusal:
        if refusal.status != NOT_FOUND:
            raise
        return GONE
    return Delivered()


async def write_note(attempt: Attempt, target: EntryTarget, entry: Entry) -> Outcome:
    """Bring a change of the built-in notes to the server: write the new conclusion, delete the old one."""
    data: Mapping[str, Json] = entry.data
    observed = attempt.peer_of(target, entry.speaker)
    outcome: Outcome = Delivered()
    if entry.text.strip():
        saying = Saying.about(attempt, target, observed, entry.text)
        outcome = await conclude(attempt, target, entry, saying)
        if not isinstance(outcome, Delivered):
            return outcome
        await attempt.host.keep(_kept_as(target, saying, data["target"]), outcome.note)
    if data["old"]:
        old = Saying.about(attempt, target, observed, data["old"])
        removed = await _remove_note(attempt, target, old, data["target"])
        return outcome if isinstance(removed, Delivered) else removed
    return outcome


async def _remove_note(attempt: Attempt, target: EntryTarget, old: Saying, note: str) -> Outcome:
    """Delete the conclusion of a note, found by its id, else by its text."""
    kept_as = _kept_as(target, old, note)
    conclusion = await attempt.host.kept(kept_as)
    if conclusion is None:
        found = await _find(attempt, target, old)
        if len(found) > 1:
            return Parked(UNDECIDED.format(len(found), ", ".join(found[:5])))
        if not found:
            return GONE
        conclusion = found[0]
    outcome = await remove_conclusion(attempt, target, str(conclusion))
    await attempt.host.keep(kept_as, None)
    return outcome


async def _find(attempt: Attempt, target: EntryTarget, saying: Saying, since: float | None = None) -> list[str]:
    """Ids of conclusions with the same text, observer and observed peer that were written since a time."""
    told = await attempt.ask(
        "POST", f"{workspace_path(target.workspace)}/conclusions/list?size=100", {"filters": saying.filters()}
    )
    items = told.value.get("items") if isinstance(told.value, dict) else None
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise Unanswered("the server's list of conclusions is none")
    ahead = 0.0 if told.date is None else told.date - attempt.host.clock.now()
    earliest = None if since is None else datetime.fromtimestamp(since + ahead - SKEW, UTC)
    return [
        str(one.get("id"))
        for one in items
        if one.get("content") == saying.content and (earliest is None or _time(one.get("created_at")) >= earliest)
    ]


def _time(given: Json) -> datetime:
    """A time as a server tells it; without a zone it is UTC. Raises Unanswered for what is none."""
    try:
        found = datetime.fromisoformat(str(given))
    except ValueError:
        raise Unanswered(f"the server tells no time of a conclusion: {str(given)[:100]}") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


async def _set_up(attempt: Attempt, target: EntryTarget, saying: Saying) -> None:
    """A server wants peers and session to be there before it concludes."""
    members, peers = attempt.link.members, sorted({saying.observer, saying.observed, target.ai_peer})
    if saying.session is None:
        await members.have_peers(target.workspace, peers, attempt.until)
        return
    joined = {peer: attempt.observing(target, peer) for peer in peers}
    await members.join(target.workspace, saying.session, joined, attempt.until)


def _kept_as(target: EntryTarget, saying: Saying, note: str) -> str:
    """Under which key the id of a note's conclusion is kept."""
    whole = "\0".join((target.workspace, saying.observer, saying.observed, note, saying.content))
    return f"note:{digest(whole, 32)}"
