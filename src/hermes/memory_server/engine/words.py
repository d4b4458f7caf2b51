"""Finding messages by their words. What a search costs hardly depends on how many messages there are."""

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
from hermes.memory_server.engine.postings import HOLDERS, WHOLE
from hermes.ranking.scoring import Flags

ENOUGH = 200
"""With a filter, so many allowed holders of a word are enough."""
SUBSTRING_ROWS = 2000
"""When no word is found, so many of the newest messages are searched letter by letter."""
SUBSTRING_HITS = 200


@dataclass(frozen=True, slots=True)
class WordHolders:
    """The words of a question that anybody uses, and for each the rows that hold it, in order."""

    words: Sequence[str]
    rows: Sequence[Positions]
    all_of_them: Positions
    """Rows that hold every word. Looked up only where some words are frequent, since for those only the newest holders
    are known."""


def rank_by_words(tx: Tx, place: SearchArea, asked: SearchWords, allowed: Allowed | None, limit: int) -> list[int]:
    """The ids of messages that hold most of the words, newer ones first among equals. It needs no outline."""
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
    """Which messages of a place hold the words; `inside` marks the rows of the place. When none holds any word, those
    that hold the text letter by letter."""
    match = text_index(tx).within(tx, place)

    def look(word: str) -> tuple[Positions, bool]:
        if allowed is None and (rows := _known_rows(tx, seen, place, inside, word)) is not None:
            return rows
        return seen.rows.first(_holders(tx, match, [word], allowed)[::-1]), False

    looked = {word: held for word in asked.words if len((held := look(word))[0])}
    found = {word: rows[-HOLDERS:] for word, (rows, _) in looked.items()}
    everything: Positions = np.zeros(0, dtype=np.int64)
    if not found:
        part = asked.text.strip()
        ids = np.array(_by_letters(tx, place, part, allowed, SUBSTRING_HITS)[::-1], dtype=np.int64)
        found = {part: rows} if len(rows := seen.rows.first(ids)) else {}
    elif len(found) > 1 and any(len(rows) >= HOLDERS for rows in found.values()):
        # Together even frequent words tell something, and who holds them all may be older than what was looked at.
        if all(is_complete for _, is_complete in looked.values()):
            everything = _in_all([rows for rows, _ in looked.values()], len(seen.rows))[-HOLDERS:]
        else:
            everything = seen.rows.first(_holders(tx, match, [*found], allowed)[::-1])
        if not len(everything):
            # Of the holders of a frequent word only the newest were looked at: it counts where there is no other.
            found = {word: rows for word, rows in found.items() if len(rows) < HOLDERS} or found
    return WordHolders([*found], [*found.values()], everything)


def _known_rows(
    tx: Tx, seen: Seen, place: SearchArea, inside: Flags | None, word: str
) -> tuple[Positions, bool] | None:
    """Which rows of a place hold a word, from what is kept for the whole workspace, and whether there are no others;
    None when that is not enough."""
    known = seen.postings.known(word)
    if inside is not None and (len(seen.rows) > WHOLE if known is None else not known.is_complete):
        return None
    if known is None or known.upto != seen.newest:
        everywhere = text_index(tx).within(tx, SearchArea(place.workspace_id))
        known = seen.postings.read(everywhere, seen.rows, word, seen.newest)
    rows = known.among(seen.rows)
    if inside is None:
        return rows, known.is_complete
    return (rows[inside[rows]], True) if known.is_complete else None


def _in_all(lists: Sequence[Positions], size: int) -> Positions:
    """The rows that are in all of the lists, of `size` rows, in order."""
    some, *others = sorted(lists, key=len)
    for rows in others:
        held = np.zeros(size, dtype=bool)
        held[rows] = True
        some = some[held[some]]
    return some


def _holders(tx: Tx, match: Match, words: Sequence[str], allowed: Allowed | None) -> MessageIds:
    """The messages that hold all of the words, the newest first."""
    newest = match(words, HOLDERS, None)
    if allowed is None:
        return newest
    kept = allowed.keep(tx, newest)
    if len(newest) < HOLDERS or len(kept) >= ENOUGH:
        return kept
    # Those that are allowed may be older than what was looked at.
    ids = allowed.all(tx)
    if not len(ids):
        return ids
    holding = match(words, None, (int(ids[0]), int(ids[-1])))
    return allowed.keep(tx, holding)[:HOLDERS]


def _by_letters(tx: Tx, place: SearchArea, part: str, allowed: Allowed | None, limit: int) -> list[int]:
    """Part of a word, or a script without spaces: look at the newest messages letter by letter."""
    if not part:
        return []
    holds = holds_text(messages.c.content, part)
    if allowed is not None and (ids := allowed.known) is not None:
        few = select(messages.c.id).where(messages.c.id.in_(ids[-SUBSTRING_ROWS:].tolist()), holds)
        return sorted((row[0] for row in tx.execute(few)), reverse=True)[:limit]
    condition = true() if allowed is None else allowed.condition
    found: set[int] = set()
    for recent in _recent(place):
        chosen = select(messages.c.id).select_from(MESSAGES.join(recent, recent.c.id == messages.c.id))
        chosen = chosen.where(holds, condition).order_by(messages.c.id.desc()).limit(limit)
        found.update(row[0] for row in tx.execute(chosen))
    return sorted(found, reverse=True)[:limit]


def _recent(place: SearchArea) -> Iterator[Any]:
    """The newest messages of a place, each part by an index of its own."""
    if place.sessions is not None:
        author: Iterable[Any] = () if place.peer is None else (messages.c.peer_id == place.peer,)
        for session in place.sessions:
            yield _newest(messages.c.seq, messages.c.session_id == session, *author)
    elif place.peer is not None:
        yield _newest(messages.c.id, messages.c.peer_id == place.peer)
    else:
        yield _newest(messages.c.id, messages.c.workspace_id == place.workspace_id)


def _newest(order: ColumnElement[int], *conditions: ColumnElement[bool]) -> Any:
    query: Select[Any] = select(messages.c.id).where(*conditions)
    return query.order_by(order.desc()).limit(SUBSTRING_ROWS).subquery()
