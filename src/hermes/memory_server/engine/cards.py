"""Peer cards: a few lines about a peer that an observer always has at hand.

A card that no person wrote follows the conclusions: single-valued facts (name, home, work) are added, superseded or
deleted ones are removed, and the least important and oldest lines are dropped when it is full. A dream adds the other
facts that a person stated about themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from sqlalchemy import bindparam, select

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import PreparedForList, PreparedStatement, upsert
from hermes.memory_server.db.tables import cards, conclusions, workspaces
from hermes.memory_server.engine.conclusions import digest, ensure_collection, find_collection
from hermes.memory_server.engine.sentence_kinds import SECRET
from hermes.memory_server.engine.sentences import read_message
from hermes.memory_server.engine.standing_kinds import standing_kind
from hermes.memory_server.engine.truth import LIVE
from hermes.memory_server.engine.workspaces import resolve
from hermes.ranking.claims import LEFT, SINGLE, read_claims
from hermes.ranking.words import split_speaker

IS_OPEN = conclusions.c.standing.is_distinct_from(SECRET)
"""SQL condition: the conclusion holds no secret."""
CARD = PreparedStatement(
    select(cards.c.lines, cards.c.written_by).where(cards.c.collection_id == bindparam("collection_id"))
)
CONFIGURATION = PreparedStatement(
    select(workspaces.c.configuration).where(workspaces.c.id == bindparam("workspace_id"))
)
MAX_LINES = 40
LASTING = frozenset({"identity", "health", "family", "instruction"})
"""Kinds of lasting facts that rank after a name, a home and work."""
MIN_DREAM_RANK = 2
"""The lowest rank of facts that only a dream puts on a card."""
MAX_NEW_CARD_CONCLUSIONS = 100
"""The number of newest conclusions that are read to create a card."""
MAX_DREAM_CARD_CONCLUSIONS = 1000
"""The number of newest conclusions that a dream reads to rewrite a card."""
OF_COLLECTION = (conclusions.c.collection_id == bindparam("collection_id"), LIVE)
NEWEST = PreparedStatement(
    select(conclusions.c.content)
    .where(*OF_COLLECTION)
    .order_by(conclusions.c.id.desc())
    .limit(MAX_NEW_CARD_CONCLUSIONS)
)
HELD = PreparedForList(
    lambda digests: select(conclusions.c.digest).where(
        *OF_COLLECTION, conclusions.c.superseded_by.is_(None), IS_OPEN, conclusions.c.digest.in_(digests)
    )
)


def read_card(tx: Tx, observer_id: int, observed_id: int) -> list[str] | None:
    """Return the card's lines, or None without a card."""
    collection = find_collection(tx, observer_id, observed_id)
    if collection is None:
        return None
    found = CARD.first(tx, collection_id=collection)
    return None if found is None else [str(line) for line in json.loads(found.lines)]


def write_card(
    tx: Tx, workspace_id: int, observer_id: int, observed_id: int, lines: Sequence[str], at: int, *, written_by: str
) -> None:
    collection = ensure_collection(tx, workspace_id, observer_id, observed_id)
    values = {"lines": json.dumps(list(lines)), "written_by": written_by, "updated_at": at}
    upsert(tx, cards, ("collection_id",), {"collection_id": collection, **values})


def is_written_by_person(tx: Tx, observer_id: int, observed_id: int) -> bool:
    """Return True if a person or a client, not a dream, wrote the card. An empty card has no author."""
    collection = find_collection(tx, observer_id, observed_id)
    found = CARD.first(tx, collection_id=collection or 0)
    return found is not None and found.lines != "[]" and found.written_by == "person"


def fill_card(tx: Tx, workspace_id: int, observer_id: int, observed_id: int, collection_id: int, at: int) -> None:
    """Rewrite a card that no person wrote, from its lines and the newest conclusions, if the workspace makes cards."""
    if _is_kept_up(tx, workspace_id, observer_id, observed_id):
        stated = (conclusions.c.collection_id == collection_id, LIVE, conclusions.c.level == "explicit")
        newest = select(conclusions.c.content).where(*stated).order_by(conclusions.c.created_at.desc())
        texts = [*tx.execute(newest.order_by(conclusions.c.id.desc()).limit(MAX_DREAM_CARD_CONCLUSIONS)).scalars()]
        texts += read_card(tx, observer_id, observed_id) or []
        if lines := choose_lines(texts, _held(tx, collection_id, texts)):
            write_card(tx, workspace_id, observer_id, observed_id, lines, at, written_by="dream")


def _is_kept_up(tx: Tx, workspace_id: int, observer_id: int, observed_id: int) -> bool:
    if is_written_by_person(tx, observer_id, observed_id):
        return False
    return resolve(CONFIGURATION.rows(tx, workspace_id=workspace_id)[0].configuration).create_card


def keep_card(tx: Tx, workspace_id: int, observer_id: int, observed_id: int, said: Iterable[str], at: int) -> None:
    """Update a card that no person wrote with new conclusions, if the workspace makes cards."""
    collection = find_collection(tx, observer_id, observed_id)
    if collection is None or not _is_kept_up(tx, workspace_id, observer_id, observed_id):
        return
    before = read_card(tx, observer_id, observed_id)
    concluded = list(said)
    new = [content for content in reversed(concluded) if _rank(content) < MIN_DREAM_RANK]
    if before is None and (new or not concluded):  # without new conclusions the card is rewritten
        new += [content for content in _newest(tx, collection) if _rank(content) < MIN_DREAM_RANK]
    texts = new + (before or [])
    lines = choose_lines(texts, _held(tx, collection, texts))
    if lines != (before or []):
        write_card(tx, workspace_id, observer_id, observed_id, lines, at, written_by="dream")


def choose_lines(contents: Iterable[str], held: frozenset[str]) -> list[str]:
    """Return the lines of a card, chosen from conclusions (the newest first) whose digests are in `held`: the most
    important first, then the newest.
    """
    texts = {content: None for content in contents if digest(content) in held and is_identity(content)}
    return sorted(texts, key=_rank)[:MAX_LINES]


def is_identity(content: str) -> bool:
    """Return True if a conclusion states who somebody is, what they have or what they like."""
    own = [claim for claim in read_claims(content) if claim.kind == claim.attribute and claim.kind != LEFT]
    if own or standing_kind(content) not in (None, SECRET):
        return True
    return any(sentence.kind == "preference" for sentence in read_message(split_speaker(content)[1]))


def _rank(content: str) -> int:
    """Return 0 for a single-valued fact (name, home, work), and more for less important facts."""
    found, kind = read_claims(content), standing_kind(content)
    if kind == "name" or any(claim.attribute in SINGLE for claim in found):
        return 0
    if kind in LASTING:
        return 1
    return MIN_DREAM_RANK if any(claim.is_own for claim in found) else MIN_DREAM_RANK + 1


def _newest(tx: Tx, collection_id: int) -> list[str]:
    return [row.content for row in NEWEST.rows(tx, collection_id=collection_id)]


def _held(tx: Tx, collection_id: int, contents: Sequence[str]) -> frozenset[str]:
    """Return the digests of the conclusions that are current."""
    wanted = sorted({digest(content) for content in contents})
    return frozenset(row.digest for row in HELD.rows(tx, wanted, collection_id=collection_id))
