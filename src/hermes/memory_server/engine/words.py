"""Finding messages by their words. What a search costs hardly depends on how many messages there are."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Select, bindparam, func, select, true

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.matching import holds_text
from hermes.memory_server.db.statements import Prepared
from hermes.memory_server.db.tables import messages, sessions
from hermes.memory_server.db.text_index import Ids, Matcher, Place
from hermes.memory_server.engine.allowed import Allowed
from hermes.memory_server.engine.messages import MESSAGES

WORDS = 48
"""How many words of a long question are looked for."""
HOLDERS = 3000
"""How many messages that hold a word are looked at, the newest first."""
ENOUGH = 200
"""Of those, as many that a filter allows are enough."""
COUNTED = 2 * HOLDERS
"""How far the messages of a place are counted."""
SESSIONS_COUNTED = 100
"""In how many sessions messages are counted before they are counted one by one."""
SUBSTRING_ROWS = 2000
"""How far back a text is looked for letter by letter when no word was found."""
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be but by did do does for from had has have how i in is it its me my of on or our so that "
        "the their them they this to was we were what when where which who why will with you your",
    )
)
SESSION_SIZE = Prepared(select(sessions.c.message_count).where(sessions.c.id == bindparam("id")))


def _size_by(owner: ColumnElement[int]) -> Prepared:
    some = select(messages.c.id).where(owner == bindparam("id")).limit(COUNTED).subquery()
    return Prepared(select(func.count().label("size")).select_from(some))


AUTHOR_SIZE = _size_by(messages.c.peer_id)
WORKSPACE_SIZE = _size_by(messages.c.workspace_id)
SOME_SESSIONS = (
    select(sessions.c.message_count)
    .where(sessions.c.workspace_id == bindparam("id"))
    .order_by(sessions.c.is_active.desc(), sessions.c.created_at.desc())
    .limit(SESSIONS_COUNTED)
    .subquery()
)
SESSIONS_SIZE = Prepared(
    select(func.count().label("sessions"), func.coalesce(func.sum(SOME_SESSIONS.c.message_count), 0).label("size"))
)


def find_by_words(tx: Tx, place: Place, query: str, allowed: Allowed | None, limit: int) -> list[int]:
    """The ids of the messages that hold the telling words of the query, the best first."""
    index = text_index(tx).within(tx, place)
    looked = {word: _holders(tx, index, [word], allowed) for word in telling_words(query)}
    holders = {word: ids for word, ids in looked.items() if len(ids)}
    if not holders:
        return _by_letters(tx, place, query.strip(), allowed, limit)
    found = _rank(holders, _size(tx, place), limit)
    if len(holders) > 1 and any(len(ids) == HOLDERS for ids in holders.values()):
        # Together even frequent words tell something, and who holds them all may be older than what was looked at.
        all_of_them = _holders(tx, index, [*holders], allowed)[:limit]
        found = list(dict.fromkeys([*all_of_them.tolist(), *found]))
    return found[:limit]


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


def _holders(tx: Tx, index: Matcher, words: Sequence[str], allowed: Allowed | None) -> Ids:
    """The messages that hold all of the words, the newest first."""
    newest = index.match(words, HOLDERS)
    if allowed is None:
        return newest
    kept = allowed.keep(tx, newest)
    if len(newest) < HOLDERS or len(kept) >= ENOUGH:
        return kept
    # Those that are allowed may be older than what was looked at.
    ids = allowed.all(tx)
    if not len(ids):
        return ids
    holding = index.match(words, None, (int(ids[0]), int(ids[-1])))
    return allowed.keep(tx, holding)[:HOLDERS]


def _size(tx: Tx, place: Place) -> int:
    """How many messages there are, as far as they are counted."""
    if place.sessions is not None:
        found = [SESSION_SIZE.first(tx, id=session) for session in place.sessions]
        return min(COUNTED, sum(int(row.message_count) for row in found if row is not None))
    if place.peer is not None:
        return int(AUTHOR_SIZE.rows(tx, id=place.peer)[0].size)
    [counted] = SESSIONS_SIZE.rows(tx, id=place.workspace_id)
    if counted.size >= COUNTED or counted.sessions < SESSIONS_COUNTED:
        return min(COUNTED, int(counted.size))
    return int(WORKSPACE_SIZE.rows(tx, id=place.workspace_id)[0].size)


def _rank(holders: Mapping[str, Ids], size: int, limit: int) -> list[int]:
    """Messages by how many of the words they hold, and how rare those are here; among equals the newer first.

    How often a message holds a word, and how long it is, was worth less than nothing where we measured it. Words that
    everyone uses are left out when there are others: of their holders only the newest were looked at.
    """
    rare = [ids for ids in holders.values() if len(ids) < HOLDERS] or [*holders.values()]
    weights = [math.log(1 + max(size - len(ids), 0) / len(ids)) for ids in rare]
    found, places = np.unique(np.concatenate(rare), return_inverse=True)
    scores = np.bincount(places, weights=np.repeat(weights, [len(ids) for ids in rare]))
    best: list[int] = found[np.lexsort((-found, -scores))[:limit]].tolist()
    return best


def _by_letters(tx: Tx, place: Place, part: str, allowed: Allowed | None, limit: int) -> list[int]:
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


def _recent(place: Place) -> Iterator[Any]:
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
