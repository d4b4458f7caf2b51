"""Calls of a model, as the tests make them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import aclosing, contextmanager

from hermes.llm.connection import Retries, Timeouts
from hermes.llm.events import Completed, ModelEvent, ModelFailed, ReasoningPiece, Reply, Retrying, TextPiece
from hermes.llm.model import Model, ModelRequest
from hermes.llm.openai_compatible import OpenAICompatible
from tests.llm.loopback import LoopbackServer
from tests.llm.steady_clock import SteadyClock

KEY = "sk-test-9f8e7d6c5b4a"
REQUEST = ModelRequest([{"role": "user", "content": "Hello?"}])
IMPATIENT = Timeouts(connect=5, first_byte=0.5, idle=0.5, total=100)


def model_at(
    server: LoopbackServer | str,
    *,
    clock: SteadyClock | None = None,
    timeouts: Timeouts | None = None,
    retries: Retries | None = None,
    api_key: str | None = KEY,
    longest_reply: int = 200_000,
) -> OpenAICompatible:
    """Return a model with a clock that never really waits, and without random jitter."""
    return OpenAICompatible(
        server if isinstance(server, str) else server.base_url,
        "loop-1",
        context_length=8192,
        api_key=api_key,
        clock=clock or SteadyClock(),
        timeouts=timeouts,
        retries=retries,
        longest_reply=longest_reply,
        chance=lambda: 0.0,
    )


async def collect(model: Model, request: ModelRequest = REQUEST) -> list[ModelEvent]:
    """Return the events of one call; check what holds for every call."""
    async with aclosing(model.stream(request)) as stream:
        events = [event async for event in stream]
    await model.close()
    check_promises(events)
    return events


def check_promises(events: list[ModelEvent]) -> None:
    """Check the promises of a call: one final event, the last; deltas that add up to the reply; no retry after
    output."""
    assert [event for event in events if isinstance(event, Completed | ModelFailed)] == events[-1:]
    reply = reply_of(events)
    assert "".join(event.text for event in events if isinstance(event, TextPiece)) == reply.text
    assert "".join(event.text for event in events if isinstance(event, ReasoningPiece)) == reply.reasoning
    kinds = [isinstance(event, Retrying) for event in events]
    assert kinds == sorted(kinds, reverse=True)


def reply_of(events: list[ModelEvent]) -> Reply:
    """Return the final reply, complete or partial."""
    last = events[-1]
    assert isinstance(last, Completed | ModelFailed)
    return last.reply if isinstance(last, Completed) else last.partial


async def complete(model: Model, request: ModelRequest = REQUEST) -> Reply:
    """Return the reply of a call that must succeed."""
    events = await collect(model, request)
    assert isinstance(events[-1], Completed), events[-1]
    return events[-1].reply


async def fail(model: Model, request: ModelRequest = REQUEST) -> ModelFailed:
    """Return the failure of a call that must fail."""
    events = await collect(model, request)
    assert isinstance(events[-1], ModelFailed), events[-1]
    return events[-1]


@contextmanager
def closed_port() -> Iterator[int]:
    """Yield a port that is taken but does not listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])
