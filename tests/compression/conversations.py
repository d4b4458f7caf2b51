"""Conversations to compress, and models that summarize them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hermes.compression.compressor import Compressor, LastLook
from hermes.compression.cut import CompressionPolicy
from hermes.compression.summarise import PROMPT
from hermes.db.engine import Tx
from hermes.db.leases import new_owner
from hermes.llm.events import Completed, Reply
from hermes.llm.model import Model, ModelRequest
from hermes.store.store import Store
from hermes.types import Draft
from tests.llm.scripted import ScriptedAnswer, ScriptedModel

WINDOW = 8_000
FILLER = "We talked about stamps from Malta and what they cost these days. " * 6


def turns(count: int, *, start: int = 0, filler: str = FILLER) -> list[Draft]:
    """Return `count` turns of a question and an answer, each with its number."""
    drafts: list[Draft] = []
    for number in range(start, start + count):
        drafts += [Draft("user", f"question {number}: {filler}"), Draft("assistant", f"answer {number}: {filler}")]
    return drafts


async def talked(store: Store, count: int = 30, *, session_id: str | None = None, filler: str = FILLER) -> str:
    """Store a session with `count` turns; return its id."""
    session = await store.create_session("test", session_id=session_id)
    await store.append(session.id, *turns(count, filler=filler))
    return session.id


async def said(store: Store, *session_ids: str) -> dict[str, list[str]]:
    """Return the texts of each session."""

    def history(tx: Tx) -> dict[str, list[str]]:
        return {key: [message.content or "" for message in store.messages.history(tx, key)] for key in session_ids}

    return await store.read(history)


def summariser(text: str = "they spoke of stamps") -> ScriptedModel:
    """Return a model whose every answer is `text`."""
    return ScriptedModel(lambda _: Reply(text), context_length=WINDOW)


def slow_summariser(asked: asyncio.Event, go_on: asyncio.Event, text: str = "they spoke of stamps") -> ScriptedModel:
    """A model that reports each request and answers when the test lets it."""

    def answer(_: ModelRequest) -> ScriptedAnswer:
        asked.set()
        return [go_on, Completed(Reply(text))]

    return ScriptedModel(answer, context_length=WINDOW)


def make_compressor(
    store: Store,
    model: Model | None,
    *,
    window: int = WINDOW,
    lease: float = 30.0,
    deadline: float = 180.0,
    last_look: LastLook | None = None,
    last_look_deadline: float = 20.0,
    make: Callable[..., Compressor] = Compressor,
) -> Compressor:
    """Return a compressor with a new owner, as another process has it."""
    return make(
        store,
        model,
        CompressionPolicy(window),
        owner=new_owner(),
        lease=lease,
        deadline=deadline,
        last_look=last_look,
        last_look_deadline=last_look_deadline,
    )


def is_summary_request(request: ModelRequest) -> bool:
    """Return True if the request comes from a compressor."""
    return bool(request.messages[0]["content"] == PROMPT)
