"""Peer cards: a few lines that an observer always has at hand about a peer.

A card that no person wrote is kept up with what is learnt: what one has one of (a name, a home, work) comes in, what
was superseded or deleted leaves, and what is least important and oldest makes room. A dream adds what else one says of
oneself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from sqlalchemy import select

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import upsert
from hermes.memory_server.db.tables import cards, conclusions, workspaces
from hermes.memory_server.engine.conclusions import digest, ensure_collection, find_collection
from hermes.memory_server.engine.sentence_kinds import SECRET
from hermes.memory_server.engine.settings import resolve
from hermes.memory_server.engine.standing_kinds import standing_kind
from hermes.memory_server.engine.truth import LIVE
from hermes.ranking.claims import SINGLE, read_claims

IS_OPEN = conclusions.c.standing.is_distinct_from(SECRET)
"""It holds no secret."""
MAX_LINES = 40
LASTING = frozenset({"identity", "health", "family", "instruction"})
"""Kinds of what always holds that come after a name, a home and work."""
LEAST_RANK = 3
"""The rank of what only a dream puts on a card."""
READ_FIRST = 100
"""How many of the newest conclusions are read for a card that is not there yet."""
IDENTITY = re.compile(
    r"\b(?:my name|i am|i'm|i live|i moved|we moved|i work|i like|i love|i hate|i prefer|i have|my [a-z]+ (?:is|are)"
    r"|ich (?:hei(?:ß|ss)e|wohne|arbeite|mag|liebe)|me llamo|vivo|trabajo|me gusta|je m['’]appelle|j['’]habite"
    r"|je travaille|j['’]aime)\b|我(?:叫|住|是|喜欢|搬)",
    re.IGNORECASE,
)
"""Says who somebody is."""


def read_card(tx: Tx, observer_id: int, observed_id: int) -> list[str] | None:
    """The card's lines; None when there is no card."""
    collection = find_collection(tx, observer_id, observed_id)
    if collection is None:
        return None
    found = tx.execute(select(cards.c.lines).where(cards.c.collection_id == collection)).scalar_one_or_none()
    return None if found is None else [str(line) for line in json.loads(found)]


def write_card(
    tx: Tx, workspace_id: int, observer_id: int, observed_id: int, lines: Sequence[str], at: int, *, written_by: str
) -> None:
    collection = ensure_collection(tx, workspace_id, observer_id, observed_id)
    values = {"lines": json.dumps(list(lines)), "written_by": written_by, "updated_at": at}
    upsert(tx, cards, ("collection_id",), {"collection_id": collection, **values})


def is_written_by_person(tx: Tx, observer_id: int, observed_id: int) -> bool:
    """Did a person or client, not a dream, write the card? One that was emptied is nobody's."""
    collection = find_collection(tx, observer_id, observed_id)
    query = select(cards.c.written_by).where(cards.c.collection_id == (collection or 0), cards.c.lines != "[]")
    return tx.execute(query).scalar_one_or_none() == "person"


def keep_card(tx: Tx, workspace_id: int, observer_id: int, observed_id: int, said: Iterable[str], at: int) -> None:
    """Bring a card that no person wrote up to what was just concluded, where the workspace makes cards."""
    collection = find_collection(tx, observer_id, observed_id)
    if collection is None or is_written_by_person(tx, observer_id, observed_id):
        return
    configuration = select(workspaces.c.configuration).where(workspaces.c.id == workspace_id)
    if not resolve(tx.execute(configuration).scalar_one()).create_card:
        return
    before = read_card(tx, observer_id, observed_id)
    known = _newest(tx, collection) if before is None else []
    told = [content for content in (*reversed(list(said)), *known) if _rank(content) < LEAST_RANK] + (before or [])
    lines = choose_lines(told, _held(tx, collection, told))
    if lines != (before or []):
        write_card(tx, workspace_id, observer_id, observed_id, lines, at, written_by="dream")


def choose_lines(contents: Iterable[str], held: frozenset[str]) -> list[str]:
    """Return the lines of a card out of conclusions, the newest first, of which those with these digests hold: the most
    important first, then the newest."""
    told = {content: None for content in contents if digest(content) in held and is_identity(content)}
    return sorted(told, key=_rank)[:MAX_LINES]


def is_identity(content: str) -> bool:
    """Return True if a conclusion says who somebody is."""
    return IDENTITY.search(content) is not None or _rank(content) < LEAST_RANK


@lru_cache(maxsize=4096)
def _rank(content: str) -> int:
    """Return 0 for what one has one of (a name, a home, work), more for what is less important."""
    found, kind = read_claims(content), standing_kind(content)
    if kind == "name" or any(claim.attribute in SINGLE for claim in found):
        return 0
    if kind in LASTING:
        return 1
    return 2 if any(claim.is_own for claim in found) else LEAST_RANK


def _newest(tx: Tx, collection_id: int) -> list[str]:
    query = select(conclusions.c.content).where(conclusions.c.collection_id == collection_id, LIVE)
    return list(tx.execute(query.order_by(conclusions.c.id.desc()).limit(READ_FIRST)).scalars())


def _held(tx: Tx, collection_id: int, contents: Sequence[str]) -> frozenset[str]:
    """Return the digests of those conclusions that hold."""
    wanted = {digest(content) for content in contents}
    holds = (conclusions.c.collection_id == collection_id, LIVE, conclusions.c.superseded_by.is_(None), IS_OPEN)
    query = select(conclusions.c.digest).where(*holds, conclusions.c.digest.in_(wanted))
    return frozenset(tx.execute(query).scalars())
