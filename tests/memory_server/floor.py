"""The bundled embedder in synchronous helpers, for tests that hold a transaction."""

from __future__ import annotations

from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.embedder import SearchQuestion, Vector, split_pieces, to_blob
from hermes.memory_server.engine.messages import MessageDraft
from hermes.memory_server.engine.search import find_hits
from hermes.memory_server.engine.vectors import MAX_ROWS_KEPT, VectorIndex
from hermes.memory_server.engine.word_vectors import WordVectors
from hermes.memory_server.tokens import count_tokens
from hermes.ranking.traits import traits_of

EMBEDDER = WordVectors()


def embed(text: str) -> Vector:
    return EMBEDDER.direction(text)


def draft(content: str, peer: str) -> MessageDraft:
    """Return a message that can be appended."""
    vectors = tuple(to_blob(embed(piece)) for piece in split_pieces(content))
    return MessageDraft(content, peer, token_count=count_tokens(content), traits=traits_of(content), vectors=vectors)


def question(text: str) -> SearchQuestion:
    return SearchQuestion(text, embed(text), embed)


def new_index(rows_kept: int = MAX_ROWS_KEPT) -> VectorIndex:
    """Vectors in memory, none read yet."""
    return VectorIndex(EMBEDDER.space.dimension, rows_kept)


def search_messages(
    tx: Tx, index: VectorIndex, place: SearchArea, question: SearchQuestion, filters: JsonMap | None, limit: int
) -> list[Record]:
    """Return the messages that match best, the best first."""
    return [hit.row for hit in find_hits(tx, index, place, question, filters, limit)]
