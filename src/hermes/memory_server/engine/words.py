"""Word search of messages. Its cost hardly depends on the number of messages.

Parsing of a question into search words, in one workspace.

The messages that a search may return when a filter or a deletion limits it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from sqlalchemy import BindParameter, ColumnElement, Select, and_, bindparam, select, true

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.matching import holds_text
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import messages, peers
from hermes.memory_server.db.text_index import Match, MessageIds, SearchArea
from hermes.memory_server.embedder import SearchQuestion, Vector
from hermes.memory_server.engine.memory_index import Positions
from hermes.memory_server.engine.memory_indexes import Seen
from hermes.memory_server.engine.messages import MESSAGES
from hermes.memory_server.engine.postings import MAX_COMPLETE_ROWS, MAX_NEWEST_ROWS
from hermes.memory_server.engine.sentences import asks_for_secret
from hermes.ranking.dates import Dates, asks_when, find_dates
from hermes.ranking.personal import MAX_CACHED_TEXTS, MAX_SPELLINGS, leave_out, spellings
from hermes.ranking.scoring import Flags
from hermes.ranking.traits import CONFIDENTIAL, UNWANTED, speaks_of_oneself
from hermes.ranking.words import split_words, telling_words


def _naming(names: int) -> PreparedStatement:
    given: list[BindParameter[str]] = [bindparam(f"n{number}") for number in range(names)]
    return PreparedStatement(
        select(peers.c.id, peers.c.name).where(
            peers.c.workspace_id == bindparam("workspace_id"), peers.c.name.in_(given)
        )
    )


NAMED = {names: _naming(names) for names in (12, 36, MAX_SPELLINGS)}
"""Statements that find which of several names are peers, by the number of names: fewer names are faster."""


@dataclass(frozen=True, slots=True)
class SearchWords:
    """A question as a search uses it. Names of peers are removed from its text, because they say who it is about, not
    what.
    """

    text: str
    words: tuple[str, ...]
    vector: Vector
    named: frozenset[int]
    """The peers that the question names."""
    dates: Dates
    asks_when: bool
    of_oneself: bool
    """True if the question names nobody, and its asker asks about themselves."""
    withheld: int
    """Traits of messages that are left out: those that a person asked not to remember, and secrets unless the question
    asks for one.
    """


def understand(tx: Tx, workspace_id: int, question: SearchQuestion) -> SearchWords:
    """Split a question into its words and the peers of the workspace that it names."""
    named = _named(tx, workspace_id, question.text)
    text = leave_out(question.text, [*named.values()])
    words = split_words(text)
    return SearchWords(
        text,
        tuple(telling_words(words)),
        question.vector if text == question.text or question.direction is None else question.direction(text),
        frozenset(named),
        find_dates(question.text),
        asks_when(question.text),
        not named and speaks_of_oneself(text, words),
        find_withheld(question.text),
    )


@lru_cache(maxsize=MAX_CACHED_TEXTS)
def find_withheld(question: str) -> int:
    """Return the traits of messages that a question does not bring."""
    return UNWANTED if asks_for_secret(question) else UNWANTED | CONFIDENTIAL


def without_names(tx: Tx, workspace_id: int, text: str) -> str:
    """Return a question without the names of peers."""
    return leave_out(text, [*_named(tx, workspace_id, text).values()])


def _named(tx: Tx, workspace_id: int, text: str) -> dict[int, str]:
    names = spellings(text)
    if not names:
        return {}
    size = next(size for size in NAMED if size >= len(names))
    given = {f"n{number}": name for number, name in enumerate(names + names[-1:] * (size - len(names)))}
    return {row.id: row.name for row in NAMED[size].rows(tx, workspace_id=workspace_id, **given)}


MESSAGES_PER_QUERY = 2000
"""The number of message ids in one query."""


class Allowed:
    """The messages of a search area that satisfy a condition, checked for a few ids (`keep`) or for all of them
    (`all`).
    """

    def __init__(
        self, tx: Tx, place: SearchArea, condition: ColumnElement[bool], candidates: Sequence[int] | None
    ) -> None:
        """`candidates` are the only messages that can satisfy the condition, if an index knows them; else None."""
        self.condition = condition
        self.known: MessageIds | None = None
        self._place = place
        if candidates is not None:
            self.known = np.sort(self._ask(tx, np.array(candidates, dtype=np.int64), self._in_place(by_index=False)))

    def keep(self, tx: Tx, ids: MessageIds) -> MessageIds:
        """Return the allowed ids, in the order given."""
        return ids[np.isin(ids, self._ask(tx, ids) if self.known is None else self.known)]

    def all(self, tx: Tx) -> MessageIds:
        """Return all allowed ids, the oldest first. Reads every message of the search area."""
        if self.known is None:
            self.known = np.sort(_numbers(tx, _chosen().where(self._in_place(), self.condition)))
        return self.known

    def _ask(self, tx: Tx, ids: MessageIds, *more: ColumnElement[bool]) -> MessageIds:
        parts = [ids[start : start + MESSAGES_PER_QUERY].tolist() for start in range(0, len(ids), MESSAGES_PER_QUERY)]
        asked = [_numbers(tx, _chosen().where(messages.c.id.in_(part), self.condition, *more)) for part in parts]
        return np.concatenate(asked) if asked else np.zeros(0, dtype=np.int64)

    def _in_place(self, *, by_index: bool = True) -> ColumnElement[bool]:
        """Return the condition "in this area". Without `by_index` it is written so that the database uses the index of
        ids.
        """
        place = self._place
        inside: list[ColumnElement[bool]] = []
        if place.sessions is not None:
            inside.append(_bare(messages.c.session_id, by_index).in_(place.sessions))
        if place.peer is not None:
            inside.append(_bare(messages.c.peer_id, by_index and not inside) == place.peer)
        return and_(*inside) if inside else _bare(messages.c.workspace_id, by_index) == place.workspace_id


def _bare(column: ColumnElement[int], by_index: bool) -> ColumnElement[int]:
    """Return the column as a sum, so that the database does not use the column's index."""
    return column if by_index else column + 0


def _chosen() -> Select[tuple[int]]:
    return select(messages.c.id).select_from(MESSAGES)


def _numbers(tx: Tx, query: Select[tuple[int]]) -> MessageIds:
    return np.array([row[0] for row in tx.execute(query)], dtype=np.int64)


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
