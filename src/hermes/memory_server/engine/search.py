"""Search in messages: candidates are found by words and by meaning, then ordered by all evidence together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import BindParameter, ColumnElement, and_, bindparam, exists, or_, select

from hermes.memory_server import limits
from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.statements import PreparedForList, PreparedStatement
from hermes.memory_server.db.tables import memberships, messages, peers, sessions
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.embedder import SearchQuestion, Vector
from hermes.memory_server.engine.candidates import find_candidates
from hermes.memory_server.engine.filters import build_filter
from hermes.memory_server.engine.finer import find_directions, refined
from hermes.memory_server.engine.memory_index import Positions
from hermes.memory_server.engine.memory_indexes import Seen
from hermes.memory_server.engine.messages import FIELDS, find_messages, select_messages
from hermes.memory_server.engine.narrowing import named, narrow, rows_named
from hermes.memory_server.engine.peers import find_peer, follow_names
from hermes.memory_server.engine.sentence_kinds import SECRET
from hermes.memory_server.engine.truth import find_changes
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.words import Allowed, find_withheld, rank_by_words, understand, without_names
from hermes.memory_server.faults import Invalid
from hermes.ranking.admission import (
    KNOWN_THRESHOLD,
    AnswerFeatures,
    AskedWords,
    FoundLine,
    lacks_value,
    likelihood,
    read_features,
)
from hermes.ranking.changes import SaidText, count_looked_at, put_newer_first
from hermes.ranking.personal import find_topic, fits_statement, states
from hermes.ranking.scoring import RELEVANCE_THRESHOLD, Floats, certainty, score
from hermes.ranking.successors import MAX_COMPARED, SaidStatement, asks_former, put_successors_first
from hermes.ranking.traits import CONFIDENTIAL, is_question, is_request, only_asks
from hermes.ranking.words import split_speaker, split_words, telling_words

DIFFERENT_SIGNS_LIMIT = 48
"""Two messages whose vectors differ in fewer signs than this may be the same text, and are compared."""
NO_LETTERS = re.compile(r"[\W_]+")
NO_ASCII = bytes(code for code in range(128) if not chr(code).isalnum())
PERSPECTIVE = "peer_perspective"
HIDDEN_FACTOR = 6
"""If too many hits are hidden (deleted but not yet removed, or of an unfinished clone), this many times more are
fetched. Checking every candidate beforehand would take many times longer.
"""
MAX_CHANGES = 5
"""The number of messages in a chain of changes that are followed."""
MAX_FOLLOWED_MESSAGES = 200
"""No further changes are followed once this many messages were read for a search."""
NOBODY = 0
"""The id that stands for no peer: it has no messages and hears none."""
NO_STATEMENT_WEIGHT, VALUE_WEIGHT = 5.0, 4.0
"""How much lower a hit is ranked that only asks or requests something, and one that lacks a value of the kind that the
question asks for. What the reader would keep was tried too: it brought no more right lines first.
"""
MAX_STATEMENT_CHARS = 400
"""Longer texts consist of many sentences and are not weighed."""
MAX_CACHED_WORDS = 4096
"""The number of words whose directions are cached."""
Fitting = tuple[int, float, float, AskedWords | None]
"""The id of a message, and the other fields of its `Hit`."""


class Hit(NamedTuple):
    """A message that was found, its score, the certainty (0 to 1) that it is about the question, the words of the
    question (None if only words were searched), and its statements that a later message changed.
    """

    row: Record
    score: float
    certainty: float
    asked: AskedWords | None = None
    changes: tuple[Record, ...] = ()
    closeness: float | None = None
    """The closeness to the question by finer vectors; None if it was not computed."""

    @property
    def is_about(self) -> bool:
        """True if the message is probably about the question."""
        return self.certainty >= RELEVANCE_THRESHOLD


def find_hits(
    tx: Tx, index: VectorIndex, place: SearchArea, question: SearchQuestion, filters: JsonMap | None, limit: int
) -> list[Hit]:
    """Return the messages that fit best, the best first. Repeated texts come last, and a value that its speaker
    changed later comes after the newer one.
    """
    is_asked = is_question(question.text)
    compared = MAX_COMPARED if is_asked or question.finer is not None else 0
    looked_at = max(limit, count_looked_at(question.text), compared)
    hits = _find_fitting(tx, index, place, question, filters, looked_at)
    if is_asked:
        hits = _put_statements_first(question.text, hits)
    said = [SaidText(hit.row.content, hit.row.peer_id, hit.row.created_at) for hit in hits]
    words = telling_words(split_words(question.text))
    ordered = [hits[at] for at in put_newer_first(question.text, words, said)]
    ordered = _put_successors_first(tx, ordered, place, question)
    if find_topic(question.text) == "name":  # it shares no word with "I'm Nina"
        ordered.sort(key=lambda hit: not states("name", hit.row.content))
    return _once(_put_changes_first(tx, ordered, place, question.text, filters), limit)


def is_answered(question: SearchQuestion, hits: Sequence[Hit]) -> bool:
    """Return True if memory probably holds the answer to a question that found these messages."""
    is_known = not hits or hits[0].asked is not None
    return not is_known or likelihood(read_answer(question, hits)) >= KNOWN_THRESHOLD


def read_answer(question: SearchQuestion, hits: Sequence[Hit]) -> AnswerFeatures | None:
    """Return the features of the messages from which the probability of an answer is computed; None without them."""
    if not hits or hits[0].asked is None:
        return None
    lines = [FoundLine(hit.row.content, hit.row.peer_id, hit.closeness) for hit in hits]
    near = question.direction
    direction = None if near is None else lambda word: _find_direction(near, word)
    return read_features(hits[0].asked, lines, direction)


def _put_statements_first(question: str, hits: list[Hit]) -> list[Hit]:
    """Sort the first hits by their scores, lowered for those that state nothing or lack what the question asks for."""
    if not hits or hits[0].asked is None:  # without scores
        return hits
    first = hits[:MAX_COMPARED]
    scores = accumulate((hit.score for hit in first), min)  # repeated texts come last, whatever their score
    worth = [own + _weigh_statement(question, hit.row.content) for own, hit in zip(scores, first, strict=True)]
    order = sorted(range(len(first)), key=lambda at: -worth[at])
    return [*(first[at] for at in order), *hits[MAX_COMPARED:]]


def _weigh_statement(question: str, text: str) -> float:
    if len(text) > MAX_STATEMENT_CHARS:
        return 0.0
    tells = not only_asks(text) and not is_request(text)
    return NO_STATEMENT_WEIGHT * (tells - 1) - VALUE_WEIGHT * lacks_value(question, text)


@lru_cache(MAX_CACHED_WORDS)
def _find_direction(direction: Callable[[str], Vector], word: str) -> Vector:
    return direction(word)


def _put_successors_first(tx: Tx, hits: list[Hit], place: SearchArea, question: SearchQuestion) -> list[Hit]:
    if question.finer is None:
        return hits
    first = [hit.row for hit in hits[:MAX_COMPARED]]
    directions = find_directions(tx, place.workspace_id, question.finer, [row.id for row in first])
    said = [SaidStatement(row.content, row.peer_id, row.created_at, directions.get(row.id)) for row in first]
    order = put_successors_first(question.text, question.finer.vector, said)
    close = {found: float(vector @ question.finer.vector) for found, vector in directions.items()}
    compared = [hit._replace(closeness=close.get(hit.row.id)) for hit in hits[:MAX_COMPARED]]
    best = max((hit.certainty for hit in hits[:1]), default=0.0)  # a successor is as relevant as what it replaced
    moved = order.index(0) if order else 0
    first = [compared[at]._replace(certainty=max(compared[at].certainty, best)) for at in order[:moved]]
    return [*first, *(compared[at] for at in order[moved:]), *hits[MAX_COMPARED:]]


def _put_changes_first(tx: Tx, hits: list[Hit], place: SearchArea, question: str, filters: JsonMap | None) -> list[Hit]:
    """Put a message that changed another's statement about the question before it, even if it is not among the hits;
    behind it if the question asks for what was before.
    """
    rows = {hit.row.id: hit.row for hit in hits}
    found_changes = _follow_changes(tx, rows, place, filters)
    if not found_changes:
        return hits
    withheld = find_withheld(question)
    known = {hit.row.id: hit._replace(changes=_find_told(hit, found_changes, withheld)) for hit in hits}
    asked = without_names(tx, place.workspace_id, question)
    changed = {
        row.older: row.newer
        for row in found_changes
        if not row.newer_traits & withheld
        and fits_statement(asked, split_speaker(row.content)[1], rows[row.older].content)
    }
    ordered: dict[int, Hit] = {}
    if asks_former(question):
        before = {newer: older for older, newer in changed.items() if older in known}
        for hit in known.values():
            for row_id in (before.get(hit.row.id, hit.row.id), hit.row.id):
                ordered.setdefault(row_id, known[row_id])
        return list(ordered.values())
    for hit in known.values():
        chain = {hit.row.id: hit}
        while (newer := changed.get(next(reversed(chain)))) is not None and len(chain) < MAX_CHANGES:
            found = known.get(newer)
            if newer in chain:
                break
            if found is None:
                found = hit._replace(row=rows[newer], changes=())
            # It is as relevant as the message that it changed.
            chain[newer] = found._replace(certainty=max(found.certainty, hit.certainty))
        for row_id in reversed(chain):
            ordered.setdefault(row_id, chain[row_id])
    return list(ordered.values())


def _follow_changes(tx: Tx, rows: dict[int, Record], place: SearchArea, filters: JsonMap | None) -> list[Record]:
    """Return the changes of these messages and the changes of those that changed them, which are added to the rows."""
    followed: list[Record] = []
    unread = list(rows)
    while unread and len(rows) < MAX_FOLLOWED_MESSAGES:
        found = find_changes(tx, unread)
        more = _find_within(tx, {row.newer for row in found} - rows.keys(), place, filters)
        rows.update(more)
        followed += [row for row in found if row.newer in rows]
        unread = list(more)
    return followed


def _find_told(hit: Hit, found_changes: Sequence[Record], withheld: int) -> tuple[Record, ...]:
    """Return the changes of a message whose newer statement is not a secret, or may be shown."""
    is_open = not withheld & CONFIDENTIAL
    return tuple(row for row in found_changes if row.older == hit.row.id and (is_open or row.newer_standing != SECRET))


def _find_within(tx: Tx, ids: Set[int], place: SearchArea, filters: JsonMap | None) -> dict[int, Record]:
    """Return those of the messages that are of the search area and heard by whom the filters name; none where other
    filters may keep them out."""
    if not ids or {*(filters or {})} - {PERSPECTIVE}:
        return {}
    listener = find_listener(tx, place.workspace_id, (filters or {}).get(PERSPECTIVE))
    found = find_messages(tx, ids) if listener is None else HEARD.rows(tx, [*ids], listener=listener)
    return {row.id: row for row in found if _is_inside(row, place)}


def _is_inside(row: Record, place: SearchArea) -> bool:
    """Return True if a message is visible and in the search area."""
    is_here = place.sessions is None or row.session_id in place.sessions
    return bool(row.is_shown and is_here and place.peer in (None, row.peer_id))


def _find_fitting(
    tx: Tx, index: VectorIndex, place: SearchArea, question: SearchQuestion, filters: JsonMap | None, limit: int
) -> list[Hit]:
    seen = index.memory_indexes.find(tx, place.workspace_id)
    given = dict(follow_names(tx, place.workspace_id, filters) or {})
    listener = find_listener(tx, place.workspace_id, given.pop(PERSPECTIVE, None))
    where = _place_within(tx, place, given)
    conditions = [build_filter(given, FIELDS)] if given else []
    if listener is not None:
        heard = None if seen is None or listener == NOBODY else heard_part(tx, seen, where, listener)
        if heard is None:
            conditions.append(heard_by(listener))
        else:
            where = heard
    if where.sessions == () or where.peer == NOBODY:
        return []
    if not conditions:
        for wanted in (limit, HIDDEN_FACTOR * limit):
            fitting = _ranked(tx, seen, where, question, None, wanted)
            shown = [hit for hit in _fetch(tx, fitting) if hit.row.is_shown]
            if len(shown) == len(fitting) or len(shown) >= 2 * limit:
                return _once(shown, limit)
    allowed = Allowed(tx, where, and_(*conditions, sessions.c.is_active.is_(True)), narrow(tx, where, given))
    if allowed.known is not None and not len(allowed.known):
        return []
    return _once(_fetch(tx, _ranked(tx, seen, where, question, allowed, limit)), limit)


def _ranked(
    tx: Tx, seen: Seen | None, place: SearchArea, question: SearchQuestion, allowed: Allowed | None, limit: int
) -> list[Fitting]:
    """Return the best messages, and some more if several may be the same text. Until the workspace's index has been
    loaded for the first time, only words are searched.
    """
    asked = understand(tx, place.workspace_id, question)
    if seen is None:
        return [(found, 0.0, 1.0, None) for found in rank_by_words(tx, place, asked, allowed, limit)]
    found = find_candidates(tx, seen, place, asked, allowed)
    scores, certain = score(found.evidence), certainty(found.evidence, found.known)
    by_another = len(asked.named) == 1 and bool(len(scores)) and not found.evidence.by_named[scores.argmax()]
    if question.finer is not None:
        scores = refined(tx, place.workspace_id, found, scores, question.finer, names_one=bool(asked.named))
    order = _best(scores, 2 * limit)
    best = order[:limit]
    lines = seen.rows.lines(found.rows[best])
    if (np.bitwise_count(lines[:, None] ^ lines).sum(axis=2, dtype=np.int64) < DIFFERENT_SIGNS_LIMIT).sum() > len(best):
        best = order
    ranked = zip(found.ids[best].tolist(), scores[best].tolist(), certain[best].tolist(), strict=True)
    words = AskedWords(question.text, asked.words, found.known, asked.named, asked.of_oneself, bool(by_another))
    return [(*fitting, words) for fitting in ranked]


def _best(scores: Floats, wanted: int) -> Positions:
    """Return the positions of the highest scores, the highest first; among equals the last."""
    least = np.partition(scores, -wanted)[-wanted] if wanted < len(scores) else -np.inf
    some = (scores >= least).nonzero()[0][::-1]
    return some[np.argsort(-scores[some], kind="stable")[:wanted]]


def _fetch(tx: Tx, fitting: Sequence[Fitting]) -> list[Hit]:
    told = {found[0]: found[1:] for found in fitting}
    return [Hit(row, *told[row.id]) for row in find_messages(tx, told)]


def _once(hits: Sequence[Hit], limit: int) -> list[Hit]:
    """Return the hits with repeated texts last."""
    seen: set[str | bytes] = set()
    first: list[Hit] = []
    again: list[Hit] = []
    for hit in hits:
        same = _letters(hit.row.content) if len(hits) > limit else b""
        (again if same and same in seen else first).append(hit)
        seen.add(same)
    return [*first, *again][:limit]


def _letters(text: str) -> str | bytes:
    """Return a text without capitals and punctuation."""
    return text.lower().encode().translate(None, NO_ASCII) if text.isascii() else NO_LETTERS.sub("", text.casefold())


def _place_within(tx: Tx, place: SearchArea, filters: JsonMap) -> SearchArea:
    """Return the search area, narrowed to the sessions and to the single author that the filter names."""
    sessions_, peer = place.sessions, place.peer
    if (names := named(filters.get("session_id"))) is not None:
        found = rows_named(tx, sessions, place.workspace_id, names)
        sessions_ = tuple(found if sessions_ is None else set(found) & set(sessions_))
    if (names := named(filters.get("peer_id"))) is not None and len(set(names)) == 1:
        author = next(iter(rows_named(tx, peers, place.workspace_id, names)), NOBODY)
        peer = author if peer in (None, author) else NOBODY
    return SearchArea(place.workspace_id, sessions_, peer)


def find_listener(tx: Tx, workspace_id: int, name: Any) -> int | None:
    """Return the peer of the filter `peer_perspective`, which finds only messages that the peer heard; None without
    it.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        raise Invalid("peer_perspective takes the id of a peer")
    found = find_peer(tx, workspace_id, name)
    return NOBODY if found is None else int(found.id)


def heard_by(listener: int | BindParameter[int]) -> ColumnElement[bool]:
    """SQL condition: the peer was a member of the message's session when the message arrived, whoever wrote it."""
    stay = (
        memberships.c.peer_id == listener,
        memberships.c.session_id == messages.c.session_id,
        memberships.c.joined_seq < messages.c.seq,
        or_(memberships.c.left_seq.is_(None), memberships.c.left_seq >= messages.c.seq),
    )
    return exists().where(*stay)


HEARD = PreparedForList(lambda ids: select_messages().where(messages.c.id.in_(ids), heard_by(bindparam("listener"))))


MAX_MEMBERSHIPS = 2000
"""The number of a peer's memberships that `heard_part` reads; it gives up on a peer with more."""
STAYS = PreparedStatement(
    select(memberships.c.session_id, memberships.c.joined_seq, memberships.c.left_seq)
    .where(memberships.c.peer_id == bindparam("peer_id"))
    .limit(MAX_MEMBERSHIPS + 1)
)


def heard_part(tx: Tx, seen: Seen, place: SearchArea, listener: int) -> SearchArea | None:
    """Return the search area, narrowed to the sessions of which the peer heard every message: faster than a condition
    on each message. None if a list of sessions cannot express it (the peer joined late or left a session with
    messages of the area), or would be too long; the caller then checks each message.
    """
    stays = STAYS.rows(tx, peer_id=listener)
    if len(stays) > MAX_MEMBERSHIPS:
        return None
    whole = {stay.session_id for stay in stays if stay.joined_seq == 0 and stay.left_seq is None}
    sessions = set(seen.ends) if place.sessions is None else set(place.sessions)
    if sessions <= whole:
        return place
    in_part = {stay.session_id for stay in stays} & sessions - whole
    if in_part and _speaks_in(seen, place, in_part):
        return None
    heard = sessions & whole
    return (
        SearchArea(place.workspace_id, tuple(heard), place.peer) if len(heard) <= limits.SESSIONS_PER_RECALL else None
    )


def _speaks_in(seen: Seen, place: SearchArea, sessions: set[int]) -> bool:
    """Return True if one of these sessions has a message of the search area."""
    inside = np.isin(seen.rows.sessions, np.array([*sessions], dtype=np.int32))
    return bool(inside.any() if place.peer is None else (seen.rows.peers[inside] == place.peer).any())
