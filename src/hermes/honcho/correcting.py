"""A fact that a person corrected or forgot, on its way to the server. Every copy goes along: each observer has its own.

Our own server edits a conclusion in place, with what it said before. At any other what holds is written first, and then
what was wrong is deleted: whatever breaks off in between, the new one is there before the old one is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hermes.honcho.attempt import Attempt
from hermes.honcho.conclusions import Saying, conclude, remove_conclusion
from hermes.honcho.facts import spoken
from hermes.honcho.messages import delete_message
from hermes.honcho.names import card_path, in_path
from hermes.honcho.wire import items_of
from hermes.memory.provider import Delivered, Entry, Outcome
from hermes.types import Json

AT_ONCE = 100
MOST_ROUNDS = 100
"""How often copies are looked for, a hundred at a time."""


async def correct_fact(attempt: Attempt, entry: Entry) -> Outcome:
    """Let every copy of a fact say what holds, or forget it with its messages. Raises Failure; again does the rest."""
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
    """Change every conclusion that says `old`; how many there were."""
    changed = 0
    for _ in range(MOST_ROUNDS):
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
        if len(copies) < AT_ONCE:
            break
    return changed


async def _copies(attempt: Attempt, peer: str, text: str) -> Sequence[Mapping[str, Json]]:
    """The conclusions about a peer that say exactly this, in anybody's view."""
    filters = {"observed_id": peer, "content": {"in": [text, f"{peer}: {text}"]}}
    told = await attempt.ask("POST", f"conclusions/list?size={AT_ONCE}", {"filters": filters})
    return items_of(told, "conclusions")


async def _remove_sources(attempt: Attempt, conclusion: str) -> None:
    """Delete the messages that a conclusion was read from, before it goes: only it knows them."""
    path = f"ext/conclusions/{in_path(conclusion)}/messages?size={AT_ONCE}"
    for _ in range(MOST_ROUNDS if attempt.link.deletes_messages else 0):
        found = await attempt.ask_if_there("GET", path)
        messages = [] if found is None else items_of(found, "messages")
        for message in messages:
            await delete_message(attempt, str(message["session_id"]), str(message["id"]))
        if len(messages) < AT_ONCE:
            break


async def _change_card(attempt: Attempt, observer: str, peer: str, old: str, right: str) -> None:
    """Change the lines of a card that say exactly this."""
    path = card_path(observer, peer)
    found = await attempt.ask_if_there("GET", path)
    lines = found.value.get("peer_card") if found is not None and isinstance(found.value, dict) else None
    if not isinstance(lines, list) or not any(spoken(str(line), peer) == old for line in lines):
        return
    changed = [_in_place_of(line, peer, right) if spoken(line, peer) == old else line for line in map(str, lines)]
    await attempt.ask("PUT", path, {"peer_card": list(dict.fromkeys(filter(None, changed)))})


def _in_place_of(content: str, peer: str, right: str) -> str:
    """What holds, after the name of who said it where one stood before; "" for nothing."""
    return f"{peer}: {right}" if right and content.startswith(f"{peer}: ") else right
