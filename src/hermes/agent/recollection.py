"""Local recall: lines from the notes and from stored sessions that memory may use."""

from __future__ import annotations

from msgspec.structs import replace

from hermes.agent.offline import Inquiry
from hermes.agent.offline_answers import MAX_QUOTES
from hermes.db.engine import Tx
from hermes.memory.corrections import Corrections
from hermes.memory.notes import Notes
from hermes.ranking.traits import only_asks
from hermes.ranking.words import split_words, telling_words
from hermes.scope import Group, Guest, Scope
from hermes.store.store import Store
from hermes.types import Message, RecalledLine

HIT_LIMITS = (12, 100, 5_000)
"""Search limits, tried in turn until enough hits are not questions."""
MAX_NEWEST_MESSAGES = 5_000
"""Messages read for a question whose topic no words describe."""


async def recollect(store: Store, notes: Notes, asked: Inquiry) -> list[RecalledLine]:
    """Return lines that may answer a question, within the scope of the notes: note entries, then messages, best or
    newest first."""
    noted = [RecalledLine(line) for line in _noted(notes, asked)]
    await store.index()
    corrections = await store.read(lambda tx: Corrections.read(tx, notes.scope))
    said = await store.read(lambda tx: _said(tx, store, notes.scope, asked))
    return [*noted, *(replace(line, text=corrections.replaced(line.text)) for line in said)]


def _noted(notes: Notes, asked: Inquiry) -> list[str]:
    """Return note entries that contain a word of the question; for a question with a topic, also all about the person.
    Unreadable notes are reported by the turn itself."""
    words = [word.rstrip("*") for word in telling_words(split_words(asked.text))]
    texts = notes.read_all().texts
    lines = [
        (target, line.lstrip("- ").strip())
        for target in ("user", "memory")
        for line in texts.get(target, "").splitlines()
    ]
    return [
        line
        for target, line in lines
        if line and ((asked.topic and target == "user") or any(word in line.lower() for word in words))
    ]


def _said(tx: Tx, store: Store, scope: Scope, asked: Inquiry) -> list[RecalledLine]:
    """Return people's earlier statements. Repeated questions do not crowd them out."""
    if asked.topic is not None:
        newest = store.search.newest(tx, scope, since=asked.since, until=asked.until, limit=MAX_NEWEST_MESSAGES)
        return [_line(message, scope) for message in newest]
    found: list[RecalledLine] = []
    for limit in HIT_LIMITS:
        hits = store.search.related(tx, asked.text, scope, limit=limit, roles=("user",))
        found = [_line(hit.message, scope) for hit in hits if not only_asks(hit.message.content or "")]
        if len(found) >= MAX_QUOTES or len(hits) < limit:
            break
    return found


def _line(message: Message, scope: Scope) -> RecalledLine:
    """Return a message as a recalled line. `speaker` is empty for the person whose conversation it is."""
    is_own = bool(message.author_is_owner) or message.author_id is None
    if isinstance(scope, Guest):
        is_own = not message.author_is_owner
    name = message.author_name or message.author_id or "someone"
    speaker = name if isinstance(scope, Group) or not is_own else ""
    return RecalledLine((message.content or "").strip(), speaker, message.timestamp)
