"""Messages to append, with everything that can be computed before the write lock is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hermes.memory_server.embedder import Embedder, split_pieces, to_blob
from hermes.memory_server.engine.answers import KeyedRequest
from hermes.memory_server.engine.sentences import message_traits
from hermes.memory_server.threads import compute
from hermes.memory_server.tokens import count_tokens, is_ready_to_count

MAX_INLINE_CHARS = 20_000
"""From this length on, tokens are counted in a thread. Shorter texts are counted fast enough in the event loop."""


@dataclass(frozen=True, slots=True)
class MessageDraft:
    """A message to append; `metadata` and `file` are JSON. `prepare_drafts` computes the rest. With an idempotency key
    it is appended once.
    """

    content: str
    peer: str
    metadata: str = "{}"
    configuration: Mapping[str, Any] = field(default_factory=dict)
    created_at: int | None = None
    file: str | None = None
    asked: KeyedRequest | None = None
    token_count: int = 0
    traits: int = 0
    vectors: tuple[bytes, ...] = ()


async def prepare_drafts(embedder: Embedder, drafts: Sequence[MessageDraft]) -> list[MessageDraft]:
    if is_ready_to_count() and sum(len(draft.content) for draft in drafts) < MAX_INLINE_CHARS:
        counted = [_count(draft) for draft in drafts]
    else:
        counted = [await compute(_count, draft) for draft in drafts]
    pieces = [split_pieces(draft.content) for draft in drafts]
    vectors = iter(await embedder.embed([piece for parts in pieces for piece in parts]))
    return [
        replace(draft, vectors=tuple(to_blob(next(vectors)) for _ in parts))
        for draft, parts in zip(counted, pieces, strict=True)
    ]


def _count(draft: MessageDraft) -> MessageDraft:
    return replace(draft, token_count=count_tokens(draft.content), traits=message_traits(draft.content))
