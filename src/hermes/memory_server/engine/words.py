"""Word search of messages. Its cost hardly depends on the number of messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Select, select, true

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.matching import holds_text
from hermes.memory_server.db.tables import messages
from hermes.memory_server.db.text_index import Match, MessageIds, SearchArea
from hermes.memory_server.engine.allowed import Allowed
from hermes.memory_server.engine.asking import SearchWords
from hermes.memory_server.engine.messages import MESSAGES
from hermes.memory_server.engine.outline import Positions
from hermes.memory_server.engine.outlines import Seen
from hermes.memory_server.engine.postings import MAX_COMPLETE_ROWS, MAX_NEWEST_ROWS
from hermes.ranking.scoring import Flags

MIN_ALLOWED_COUNT = 200
"""With a filter, this many allowed holders of a word are enough."""
MAX_SUBSTRING_ROWS = 2000
"""The number of newest messages that are searched as plain text if no word is found."""
MAX_SUBSTRING_HITS = 200


@dataclass(frozen=True, slots=True)
class WordHolders:
    """The words of a question that some message holds, and for each the rows that hold it, in order."""

    words: Sequence[str]
    rows: Sequence[Positions]
    all_of_them: Positions
    """The rows that hold every word. Only looked up if some words are frequent, because of those only the newest rows
    are known.
    """


def rank_by_words(tx: Tx, place: SearchArea, asked: SearchWords, allowed: Allowed | None, limit: int) -> list[int]:
    """Return the ids of messages that hold most of the words, the newest first among equals. Works without an
    outline.
    """
    match = text_index(tx).within(tx, place)
    found = [ids for word in asked.words if len(ids := _holders(tx, match, [word], allowed))]
    if not found:
        return _by_letters(tx, place, asked.text.strip(), allowed, limit)
    ids, places = np.unique(np.concatenate(found), return_inverse=True)
    scores = np.bincount(places, weights=np.repeat([1 / len(some) for some in found], [*map(len, found)]))
    best: list[int] = ids[np.lexsort((-ids, -scores))[:limit]].tolist()
    return best


def find_holders(
    tx: Tx, seen: Seen, place: SearchArea, inside: Flags | None, asked: SearchWords, allowed: Allowed | None
) -> WordHolders:
    """Return which messages of an area hold the words; `inside` marks the rows of the area. If none holds any word,
    return those that contain the text as it is.
    """
    match = text_index(tx).within(tx, place)

    def look(word: str) -> tuple[Positions, bool]:
        if allowed is None and (rows := _known_rows(tx, seen, place, inside, word)) is not None:
            return rows
        return seen.rows.first(_holders(tx, match, [word], allowed)[::-1]), False

    looked = {word: held for word in asked.words if len((held := look(word))[0])}
    found = {word: rows[-MAX_NEWEST_ROWS:] for word, (rows, _) in looked.items()}
    everything: Positions = np.zeros(0, dtype=np.int64)
    if not found:
        part = asked.text.strip()
        ids = np.array(_by_letters(tx, place, part, allowed, MAX_SUBSTRING_HITS)[::-1], dtype=np.int64)
        found = {part: rows} if len(rows := seen.rows.first(ids)) else {}
    elif len(found) > 1 and any(len(rows) >= MAX_NEWEST_ROWS for rows in found.values()):
        # Frequent words are specific in combination, and messages with all of them may be older than the known rows.
        if all(is_complete for _, is_complete in looked.values()):
            everything = _in_all([rows for rows, _ in looked.values()], len(seen.rows))[-MAX_NEWEST_ROWS:]
        else:
            everything = seen.rows.first(_holders(tx, match, [*found], allowed)[::-1])
        if not len(everything):
            # Only the newest rows of a frequent word are known: it counts only if all words are frequent.
            found = {word: rows for word, rows in found.items() if len(rows) < MAX_NEWEST_ROWS} or found
    return WordHolders([*found], [*found.values()], everything)


def _known_rows(
    tx: Tx, seen: Seen, place: SearchArea, inside: Flags | None, word: str
) -> tuple[Positions, bool] | None:
    """Return the rows of an area that hold a word, from the postings of the whole workspace, and whether these are
    all; None if the postings do not suffice.
    """
    known = seen.postings.known(word)
    if inside is not None and (len(seen.rows) > MAX_COMPLETE_ROWS if known is None else not known.is_complete):
        return None
    if known is None or known.upto != seen.newest:
        everywhere = text_index(tx).within(tx, SearchArea(place.workspace_id))
        known = seen.postings.read(everywhere, seen.rows, word, seen.newest)
    rows = known.among(seen.rows)
    if inside is None:
        return rows, known.is_complete
    return (rows[inside[rows]], True) if known.is_complete else None


def _in_all(lists: Sequence[Positions], size: int) -> Positions:
    """Return the rows, of `size` rows, that are in all of the lists, in order."""
    some, *others = sorted(lists, key=len)
    for rows in others:
        held = np.zeros(size, dtype=bool)
        held[rows] = True
        some = some[held[some]]
    return some


def _holders(tx: Tx, match: Match, words: Sequence[str], allowed: Allowed | None) -> MessageIds:
    """Return the messages that hold all of the words, the newest first."""
    newest = match(words, MAX_NEWEST_ROWS, None)
    if allowed is None:
        return newest
    kept = allowed.keep(tx, newest)
    if len(newest) < MAX_NEWEST_ROWS or len(kept) >= MIN_ALLOWED_COUNT:
        return kept
    # Allowed messages may be older than the newest holders.
    ids = allowed.all(tx)
    if not len(ids):
        return ids
    holding = match(words, None, (int(ids[0]), int(ids[-1])))
    return allowed.keep(tx, holding)[:MAX_NEWEST_ROWS]


def _by_letters(tx: Tx, place: SearchArea, part: str, allowed: Allowed | None, limit: int) -> list[int]:
    """Return the newest messages that contain a text as it is: for parts of words, and scripts without spaces."""
    if not part:
        return []
    if allowed is not None and (ids := allowed.known) is not None:
        holds = holds_text(messages.c.content, part)
        few = select(messages.c.id).where(messages.c.id.in_(ids[-MAX_SUBSTRING_ROWS:].tolist()), holds)
        return sorted((row[0] for row in tx.execute(few)), reverse=True)[:limit]
    condition = true() if allowed is None else allowed.condition
    found: set[int] = set()
    for recent in _recent(place):
        chosen = select(messages.c.id).select_from(MESSAGES.join(recent, recent.c.id == messages.c.id))
        # The text of `recent`, not of `messages`: else PostgreSQL may read all messages, and in their order.
        found.update(row[0] for row in tx.execute(chosen.where(holds_text(recent.c.content, part), condition)))
    return sorted(found, reverse=True)[:limit]


def _recent(place: SearchArea) -> Iterator[Any]:
    """Yield queries for the newest messages of an area, each answered by one index."""
    if place.sessions is not None:
        author: Iterable[Any] = () if place.peer is None else (messages.c.peer_id == place.peer,)
        for session in place.sessions:
            yield _newest(messages.c.seq, messages.c.session_id == session, *author)
    elif place.peer is not None:
        yield _newest(messages.c.id, messages.c.peer_id == place.peer)
    else:
        yield _newest(messages.c.id, messages.c.workspace_id == place.workspace_id)


def _newest(order: ColumnElement[int], *conditions: ColumnElement[bool]) -> Any:
    query: Select[Any] = select(messages.c.id, messages.c.content).where(*conditions)
    return query.order_by(order.desc()).limit(MAX_SUBSTRING_ROWS).subquery()
