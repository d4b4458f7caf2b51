"""Corrections and deletions of facts by a person, applied to every copy: each observer has its own.

Our own server edits a conclusion in place and keeps its history. On any other server the new conclusion is written
before the old one is deleted, so that an interruption never loses both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hermes.honcho.attempt import Attempt
from hermes.honcho.conclusions import Saying, conclude, remove_conclusion
from hermes.honcho.facts import strip_speaker
from hermes.honcho.messages import delete_message
from hermes.honcho.names import card_path, in_path
from hermes.honcho.wire import items_of
from hermes.memory.provider import Delivered, Entry, Outcome
from hermes.types import Json

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
