"""A fact that a person corrected or forgot, on its way to the server. Every copy goes along: each observer has its own.

Our own server edits a conclusion in place, with what it said before. At any other what holds is written first, and then
what was wrong is deleted: whatever breaks off in between, the new one is there before the old one is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from hermes.honcho.addresses import EntryTarget
from hermes.honcho.attempt import Attempt
from hermes.honcho.conclusions import Saying, conclude, remove_conclusion
from hermes.honcho.facts import spoken
from hermes.honcho.failures import NOT_FOUND, Refusal, Unanswered
from hermes.honcho.members import workspace_path
from hermes.memory.provider import Delivered, Entry, Outcome
from hermes.types import Json

AT_ONCE = 100
MOST_ROUNDS = 100
"""How often copies are looked for, a hundred at a time."""


async def correct_fact(attempt: Attempt, target: EntryTarget, entry: Entry) -> Outcome:
    """Let every copy of a fact say what holds, or forget it with the messages it was read from. Raises Failure; doing
    it again does the rest."""
    peer, old, right = attempt.peer_of(target, entry.speaker), str(entry.data["old"]), entry.text
    outcome: Outcome = Delivered()
    if right and not attempt.link.edits_conclusions:
        outcome = await conclude(attempt, target, entry, Saying.about(attempt, target, peer, right))
        if not isinstance(outcome, Delivered):
            return outcome
    changed = await _change_copies(attempt, target, peer, old, right)
    if right and not changed and attempt.link.edits_conclusions:
        outcome = await _have(attempt, target, entry, peer, right)
    for observer in sorted({target.ai_peer, peer}):
        await _change_card(attempt, target, observer, peer, old, right)
    return outcome


async def _change_copies(attempt: Attempt, target: EntryTarget, peer: str, old: str, right: str) -> int:
    """Change every conclusion that says `old`; how many there were."""
    changed = 0
    for _ in range(MOST_ROUNDS):
        copies = await _copies(attempt, target, peer, old)
        for copy in copies:
            if right and attempt.link.edits_conclusions:
                await _edit(attempt, target, str(copy["id"]), _in_place_of(str(copy["content"]), peer, right))
            else:
                await _remove(attempt, target, str(copy["id"]), with_sources=not right)
        changed += len(copies)
        if len(copies) < AT_ONCE:
            break
    return changed


async def _copies(attempt: Attempt, target: EntryTarget, peer: str, text: str) -> Sequence[Mapping[str, Json]]:
    """The conclusions about a peer that say exactly this, in anybody's view."""
    filters = {"observed_id": peer, "content": {"in": [text, f"{peer}: {text}"]}}
    path = f"{workspace_path(target.workspace)}/conclusions/list?size={AT_ONCE}"
    return _items((await attempt.ask("POST", path, {"filters": filters})).value)


async def _edit(attempt: Attempt, target: EntryTarget, conclusion: str, content: str) -> None:
    path = f"{workspace_path(target.workspace)}/ext/conclusions/{quote(conclusion, safe='')}"
    await _if_there(attempt, "PUT", path, {"content": content})


async def _remove(attempt: Attempt, target: EntryTarget, conclusion: str, *, with_sources: bool) -> None:
    """Delete a conclusion; the messages first, because only it knows them."""
    root = workspace_path(target.workspace)
    if with_sources and attempt.link.deletes_messages:
        path = f"{root}/ext/conclusions/{quote(conclusion, safe='')}/messages?size={AT_ONCE}"
        for message in _items(await _if_there(attempt, "GET", path) or {"items": []}):
            session, number = quote(str(message["session_id"]), safe=""), quote(str(message["id"]), safe="")
            await _if_there(attempt, "DELETE", f"{root}/ext/sessions/{session}/messages/{number}")
    await remove_conclusion(attempt, target, conclusion)


async def _have(attempt: Attempt, target: EntryTarget, entry: Entry, peer: str, right: str) -> Outcome:
    """What holds is there already, because an earlier attempt got so far, or it is written now."""
    if await _copies(attempt, target, peer, right):
        return Delivered()
    return await conclude(attempt, target, entry, Saying.about(attempt, target, peer, right))


async def _change_card(attempt: Attempt, target: EntryTarget, observer: str, peer: str, old: str, right: str) -> None:
    """Change the lines of a card that say exactly this."""
    about = "" if observer == peer else f"?target={quote(peer, safe='')}"
    path = f"{workspace_path(target.workspace)}/peers/{quote(observer, safe='')}/card{about}"
    found = await _if_there(attempt, "GET", path)
    lines = found.get("peer_card") if isinstance(found, dict) else None
    if not isinstance(lines, list) or not any(spoken(str(line), peer) == old for line in lines):
        return
    changed = [_in_place_of(line, peer, right) if spoken(line, peer) == old else line for line in map(str, lines)]
    await attempt.ask("PUT", path, {"peer_card": list(dict.fromkeys(filter(None, changed)))})


def _in_place_of(content: str, peer: str, right: str) -> str:
    """What holds, after the name of who said it where one stood before; "" for nothing."""
    return f"{peer}: {right}" if right and content.startswith(f"{peer}: ") else right


async def _if_there(attempt: Attempt, method: str, path: str, body: Json = None) -> Json:
    """The server's answer; None where what it is about is gone."""
    try:
        return (await attempt.ask(method, path, body)).value
    except Refusal as refusal:
        if refusal.status != NOT_FOUND:
            raise
        return None


def _items(value: Json) -> Sequence[Mapping[str, Json]]:
    items = value.get("items") if isinstance(value, dict) else None
    if not isinstance(items, list) or not all(isinstance(one, dict) and "id" in one for one in items):
        raise Unanswered("the server's list is none")
    return items
