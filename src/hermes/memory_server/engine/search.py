"""Search in messages: by words (full text) and by meaning (vectors), fused by rank."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, column, exists, func, or_, select, table, text, true

from hermes.memory_server.db.engine import Record, Tx
from hermes.memory_server.db.statements import Prepared
from hermes.memory_server.db.tables import memberships, messages, sessions
from hermes.memory_server.engine.embed import embed
from hermes.memory_server.engine.filters import build_filter
from hermes.memory_server.engine.messages import FIELDS, MESSAGES, find_messages
from hermes.memory_server.engine.peers import find_peer
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.faults import Invalid

RANK_OFFSET = 60
"""How little the first ranks differ from each other when two lists are fused."""
WORDS = 48
"""How many words of a long question are looked for."""
RANKED_ROWS = 3000
"""How many messages are ranked by their words: what many hold tells little, so frequent words are left out first."""
SUBSTRING_ROWS = 2000
"""How far back a text is looked for letter by letter when no word was found."""
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be but by did do does for from had has have how i in is it its me my of on or our so that "
        "the their them they this to was we were what when where which who why will with you your",
    )
)
message_index = table("message_index", column("rowid"), column("rank"))
RANKED = (
    select(message_index.c.rowid)
    .where(text("message_index MATCH :match"))
    .order_by(text("bm25(message_index, 0.0, 1.0)"))
    .limit(bindparam("most"))
)
RANKED_ALL = Prepared(RANKED)
HOLDING = Prepared(
    select(func.count().label("held")).select_from(
        select(message_index.c.rowid).where(text("message_index MATCH :match")).limit(RANKED_ROWS).subquery()
    )
)
DELETED = Prepared(
    select(sessions.c.id)
    .where(sessions.c.workspace_id == bindparam("workspace_id"), sessions.c.is_active.is_(False))
    .limit(1)
)
"""Sessions that are deleted but not yet removed; mostly there are none."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look: a workspace, and within it some sessions or one author."""

    workspace_id: int
    sessions: tuple[int, ...] | None = None
    peer: int | None = None

    def scope_terms(self) -> str:
        """The place in the words of the full-text index."""
        terms = [] if self.peer is None else [f"scope : p{self.peer}"]
        if self.sessions is not None:
            terms.append("scope : (" + " OR ".join(f"s{session}" for session in self.sessions) + ")")
        return " AND ".join(terms) or f"scope : w{self.workspace_id}"


def search_messages(
    tx: Tx, index: VectorIndex, place: Place, query: str, filters: Mapping[str, Any] | None, limit: int
) -> list[Record]:
    """The messages that fit best, the best first."""
    condition = search_condition(tx, place.workspace_id, filters)
    if place.sessions == ():
        return []
    by_words = _by_words(tx, place, query, condition, limit * 2)
    by_meaning = _by_meaning(tx, index, place, query, condition, limit * 2)
    ids = fuse(by_words, by_meaning)[:limit]
    return find_messages(tx, ids)


def fuse(*ranked: Sequence[int]) -> list[int]:
    """Several rankings as one: who stands high in many stands highest."""
    scores: dict[int, float] = {}
    for ids in ranked:
        for rank, found in enumerate(ids, start=1):
            scores[found] = scores.get(found, 0.0) + 1.0 / (RANK_OFFSET + rank)
    return sorted(scores, key=lambda found: (-scores[found], -found))


def search_condition(tx: Tx, workspace_id: int, filters: Mapping[str, Any] | None) -> ColumnElement[bool] | None:
    """What a search's filter means; None when there is nothing to check."""
    given = dict(filters or {})
    perspective = given.pop("peer_perspective", None)
    parts = [build_filter(given, FIELDS)] if given else []
    if DELETED.first(tx, workspace_id=workspace_id) is not None:
        parts.append(sessions.c.is_active.is_(True))
    if perspective is not None:
        parts.append(_seen_by(tx, workspace_id, perspective))
    return and_(true(), *parts) if parts else None


def _seen_by(tx: Tx, workspace_id: int, peer: Any) -> ColumnElement[bool]:
    """Messages, whoever wrote them, that came while the peer was in their session."""
    if not isinstance(peer, str):
        raise Invalid("peer_perspective takes the id of a peer")
    found = find_peer(tx, workspace_id, peer)
    stay = (
        memberships.c.peer_id == (found.id if found is not None else 0),
        memberships.c.session_id == messages.c.session_id,
        memberships.c.joined_seq < messages.c.seq,
        or_(memberships.c.left_seq.is_(None), memberships.c.left_seq >= messages.c.seq),
    )
    return exists().where(*stay)


def telling_words(query: str) -> list[str]:
    """The words to look for. Punctuation is no operator."""
    words = [word for word in _split(query.lower()) if any(letter.isalnum() for letter in word)]
    telling = [word for word in words if word not in STOP_WORDS] or words
    return list(dict.fromkeys(telling))[:WORDS]


def _split(text: str) -> list[str]:
    if text.isascii():
        return re.findall(r"\w+", text)
    # A mark (an accent, a vowel sign) is a part of the word that it stands in.
    kept = (letter if letter.isalnum() or letter == "_" or _is_mark(letter) else " " for letter in text)
    return "".join(kept).split()


def _is_mark(letter: str) -> bool:
    return unicodedata.category(letter).startswith("M")


def _present(tx: Tx, place: Place, words: Sequence[str]) -> tuple[list[str], int]:
    """The words that messages of this place hold, the rarest first, and how many of them few enough hold; one at
    least."""
    held = {word: HOLDING.rows(tx, match=_match(place, [word]))[0][0] for word in words}
    present = sorted((word for word in words if held[word]), key=held.__getitem__)
    total = itertools.accumulate(held[word] for word in present)
    return present, max(1, sum(rows <= RANKED_ROWS for rows in total))


def _match(place: Place, words: Sequence[str], joined: str = "OR") -> str:
    """Any of the words, or with `AND` all of them, in the full-text language."""
    wanted = f" {joined} ".join(f'"{word}"' for word in words)
    return f"({place.scope_terms()}) AND content : ({wanted})"


def _by_words(tx: Tx, place: Place, query: str, condition: ColumnElement[bool] | None, limit: int) -> list[int]:
    present, rare = _present(tx, place, telling_words(query))
    if not present:
        return _by_letters(tx, place, query.strip(), condition, limit)
    if rare == len(present):
        found = _ranked(tx, _match(place, present), condition, limit)
    else:
        # Who holds the frequent words too comes first: together they tell more than any of them.
        found = _ranked(tx, _match(place, present, "AND"), condition, limit)
        if len(found) < limit:
            found += _ranked(tx, _match(place, present[:rare]), condition, limit)
        found = list(dict.fromkeys(found or _ranked(tx, _match(place, present[rare:]), condition, limit)))[:limit]
    return found or _by_letters(tx, place, query.strip(), condition, limit)


def _ranked(tx: Tx, match: str, condition: ColumnElement[bool] | None, limit: int) -> list[int]:
    given = {"match": match, "most": limit}
    if condition is None:
        return [row[0] for row in RANKED_ALL.rows(tx, **given)]
    joined = MESSAGES.join(message_index, message_index.c.rowid == messages.c.id)
    return [row[0] for row in tx.execute(RANKED.select_from(joined).where(condition), given)]


def _by_letters(tx: Tx, place: Place, part: str, condition: ColumnElement[bool] | None, limit: int) -> list[int]:
    """Part of a word, or a script without spaces: look at the newest messages letter by letter."""
    if not part:
        return []
    newest = select(messages.c.id).where(messages.c.workspace_id == place.workspace_id)
    if place.sessions is not None:
        newest = newest.where(messages.c.session_id.in_(place.sessions))
    if place.peer is not None:
        newest = newest.where(messages.c.peer_id == place.peer)
    recent = newest.order_by(messages.c.id.desc()).limit(SUBSTRING_ROWS).subquery()
    found = select(messages.c.id).select_from(MESSAGES.join(recent, recent.c.id == messages.c.id))
    found = found.where(func.text_holds(messages.c.content, part) == 1, true() if condition is None else condition)
    return [row[0] for row in tx.execute(found.order_by(messages.c.id.desc()).limit(limit))]


def _by_meaning(
    tx: Tx, index: VectorIndex, place: Place, query: str, condition: ColumnElement[bool] | None, limit: int
) -> list[int]:
    vector = embed(query)
    if not vector.any():
        return []
    wanted = limit
    while True:
        hits = index.nearest_messages(tx, place.workspace_id, vector, wanted, sessions=place.sessions, peer=place.peer)
        ids = [message_id for message_id, _ in hits]
        allowed = ids if condition is None else _allowed(tx, ids, condition)
        if len(allowed) >= limit or len(hits) < wanted:
            return allowed[:limit]
        wanted *= 8


def _allowed(tx: Tx, ids: list[int], condition: ColumnElement[bool]) -> list[int]:
    """Those of `ids`, in their order, that the condition holds for."""
    kept: set[int] = set()
    for start in range(0, len(ids), 5000):
        part = ids[start : start + 5000]
        query = select(messages.c.id).select_from(MESSAGES).where(messages.c.id.in_(part), condition)
        kept.update(row[0] for row in tx.execute(query))
    return [message_id for message_id in ids if message_id in kept]
