"""Derivation: from messages to explicit conclusions, which are a person's own statements, word for word, with their
sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from sqlalchemy import bindparam, select, update

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import PreparedForList, PreparedStatement
from hermes.memory_server.db.tables import conclusion_messages, conclusion_versions, conclusions, messages
from hermes.memory_server.embedder import Embedder, to_blob
from hermes.memory_server.engine.cards import keep_card
from hermes.memory_server.engine.conclusions import digest, ensure_collection, insert_conclusion, link_messages
from hermes.memory_server.engine.messages import find_messages
from hermes.memory_server.engine.sentence_kinds import SECRET
from hermes.memory_server.engine.sentences import is_kept, read_message
from hermes.memory_server.engine.standing_kinds import standing_kind
from hermes.memory_server.engine.tombstones import find_tombstone_time
from hermes.memory_server.engine.truth import LIVE
from hermes.ranking.claims import read_claims

KNOWN = PreparedStatement(
    select(conclusions.c.id, conclusions.c.superseded_by)
    .where(conclusions.c.collection_id == bindparam("collection_id"), conclusions.c.digest == bindparam("digest"))
    .where(conclusions.c.session_id == bindparam("session_id"), conclusions.c.deleted_at.is_(None))
    .where(conclusions.c.level == "explicit")
    .order_by(conclusions.c.id.desc())
)
"""Finds retired conclusions too, so that they are not derived again."""
LINKED = PreparedStatement(
    select(conclusion_messages.c.conclusion_id)
    .join(conclusions, conclusions.c.id == conclusion_messages.c.conclusion_id)
    .where(conclusion_messages.c.message_id == bindparam("message_id"))
    .where(conclusions.c.collection_id == bindparam("collection_id"), conclusions.c.digest == bindparam("digest"))
)
EARLIER = PreparedStatement(
    select(conclusion_versions.c.content)
    .join(conclusions, conclusions.c.id == conclusion_versions.c.conclusion_id)
    .join(conclusion_messages, conclusion_messages.c.conclusion_id == conclusions.c.id)
    .where(conclusion_messages.c.message_id == bindparam("message_id"))
    .where(conclusions.c.collection_id + 0 == bindparam("collection_id"), LIVE)  # `+ 0`: else it is all scanned
)
"""The earlier texts of edited conclusions that came from a message."""
COUNT_AGAIN = PreparedStatement(
    update(conclusions)
    .where(conclusions.c.id == bindparam("known_id"))
    .values(times_derived=conclusions.c.times_derived + 1)
)
LOCK_MESSAGES = PreparedForList(
    lambda ids: (
        select(messages.c.id)
        .where(messages.c.id.in_(ids))
        .order_by(messages.c.id)
        .with_for_update(read=True, key_share=True)
    )
)
"""Lock messages against removal, so that a removal waits and finds the conclusions that are drawn from them."""
JOINT = re.compile(
    r"(?:[,;]\s{1,3}|\s{1,3})(?:and|und|y|et)\s{1,3}|[，；,;]\s{0,3}(?:而且|并且)?(?=我|住|在)", re.IGNORECASE
)
"""A place where one clause of a sentence may end and another begin."""
MAX_CLAUSES = 8


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement about its author in a message."""

    content: str
    message: Record
    whole: str
    """The sentence that contains the clause, or the clause itself: earlier versions stored whole sentences."""
    vector: bytes = b""


def read_statements(tx: Tx, message_ids: Iterable[int]) -> list[Statement]:
    """Return the statements of these messages; missing messages are skipped."""
    return [
        Statement(f"{row.peer}: {clause}", row, f"{row.peer}: {sentence.text}")
        for row in find_messages(tx, sorted(message_ids))
        for sentence in filter(is_kept, read_message(row.content))
        for clause in ([sentence.text] if sentence.kind == SECRET else split_clauses(sentence.text))
    ]


def split_clauses(sentence: str) -> list[str]:
    """Split a sentence into clauses that each state a fact, so that one can change without the others: `I'm Nina and I
    live in Lisbon`.
    """
    found: list[tuple[int, int]] = []
    start = 0
    for joint in islice(JOINT.finditer(sentence), MAX_CLAUSES - 1):
        found, start = _add_clause(sentence, found, start, joint.start()), joint.end()
    return [sentence[start:end] for start, end in _add_clause(sentence, found, start, len(sentence))]


def _add_clause(sentence: str, found: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """Add a clause to the previous ones; a clause that cannot stand alone extends the last one."""
    if not found:
        return [(start, end)]
    begun = found[-1][0]
    if _are_separate_facts(sentence[begun : found[-1][1]], sentence[start:end]):
        return [*found, (start, end)]
    return [*found[:-1], (begun, end)]


def _are_separate_facts(first: str, second: str) -> bool:
    """Return True if both clauses state facts about a person, and different ones."""
    claimed = [{claim.attribute for claim in read_claims(clause)} for clause in (first, second)]
    tells = all(own or standing_kind(clause) for own, clause in zip(claimed, (first, second), strict=True))
    return tells and claimed[0].isdisjoint(claimed[1])


async def embed_statements(embedder: Embedder, statements: Sequence[Statement]) -> list[Statement]:
    vectors = await embedder.embed([statement.content for statement in statements])
    return [replace(said, vector=to_blob(vector)) for said, vector in zip(statements, vectors, strict=True)]


def remember(tx: Tx, workspace_id: int, observers: Iterable[int], statements: Sequence[Statement], at: int) -> None:
    """Store statements as conclusions of each observer; a statement that is stored already is counted once more.
    Statements that were corrected or deleted since are not derived again from the same message.

    Messages that were deleted meanwhile are skipped, and the current author of a message counts.
    """
    ids = sorted({said.message.id for said in statements})
    LOCK_MESSAGES.rows(tx, ids)
    now = {row.id: row for row in find_messages(tx, ids)}
    statements = [replace(said, message=now[said.message.id]) for said in statements if said.message.id in now]
    for observer in sorted(observers):
        for observed in sorted({said.message.peer_id for said in statements}):
            collection = ensure_collection(tx, workspace_id, observer, observed)
            own = [said for said in statements if said.message.peer_id == observed]
            for said in own:
                _remember(tx, collection, said, at)
            keep_card(tx, workspace_id, observer, observed, [said.content for said in own], at)


def _remember(tx: Tx, collection_id: int, said: Statement, at: int) -> None:
    message, same = said.message, {"collection_id": collection_id, "digest": digest(said.content)}
    if any(
        LINKED.first(tx, message_id=message.id, collection_id=collection_id, digest=digest(text)) is not None
        for text in {said.content, said.whole}
    ):
        return
    known = KNOWN.first(tx, session_id=message.session_id, **same)
    if known is None and (_is_corrected(tx, collection_id, said) or _was_deleted(tx, collection_id, said)):
        return
    if known is None or known.superseded_by is not None:  # a repeated statement is current again
        insert_conclusion(
            tx,
            message.workspace_id,
            collection_id,
            message.session_id,
            said.content,
            message.created_at,
            at,
            vector=said.vector,
            message_ids=[message.id],
        )
        return
    COUNT_AGAIN.run(tx, known_id=known.id)
    link_messages(tx, known.id, [message.id])


def _was_deleted(tx: Tx, collection_id: int, said: Statement) -> bool:
    """Return True if the statement was deleted after its message arrived."""
    deleted = [find_tombstone_time(tx, collection_id, text) for text in {said.content, said.whole}]
    return any(at is not None and said.message.created_at <= at for at in deleted)


def _is_corrected(tx: Tx, collection_id: int, said: Statement) -> bool:
    rows = EARLIER.rows(tx, message_id=said.message.id, collection_id=collection_id)
    own = {digest(said.content), digest(said.whole)}
    return any(digest(row.content) in own for row in rows)
