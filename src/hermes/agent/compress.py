"""How an agent's conversation is kept within the model's window: before a request, on request, and ahead of time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from hermes.agent.agent import Agent
from hermes.agent.review import review_messages
from hermes.compression.compressor import CompressionResult, Compressor, Request
from hermes.compression.cut import message_tokens
from hermes.compression.policy import CompressionPolicy
from hermes.llm.tokens import estimate_tokens
from hermes.types import LiveView, Message

BUSY_PATIENCE = 60.0
BUSY_POLL = 0.2


def compressor_of(agent: Agent) -> Compressor:
    """What compresses this agent's session. It keeps nothing, so it is made when needed."""
    return Compressor(
        agent.store,
        None if agent.answers_from_memory else agent.model,
        CompressionPolicy(agent.model.context_length, agent.policy.compress_at, agent.policy.keep_turns),
        owner=agent.owner,
        deadline=agent.policy.compress_deadline,
        last_look=partial(_last_look, agent),
    )


async def compress_to_fit(agent: Agent, tokens: int) -> str | None:
    """Called when the next request would have `tokens`. What a person should know of it, or None."""
    compressor = compressor_of(agent)
    if tokens <= compressor.policy.limit:
        return None
    must_fit = tokens > compressor.policy.hard_limit
    result = await compressor.compress(agent.session_id, Request(automatic=True, must_fit=must_fit))
    waited = 0.0
    while must_fit and result.outcome == "busy" and waited < BUSY_PATIENCE:
        await agent.clock.sleep(BUSY_POLL)
        waited += BUSY_POLL
        result = await compressor.compress(agent.session_id, Request(automatic=True, must_fit=True))
    return describe(result) if result.outcome in ("done", "failed") else None


async def compress_smaller(agent: Agent) -> bool:
    """The model says that the request was too long, whatever we had counted. True when it is shorter now."""
    view = await agent.store.view(agent.session_id)
    compressor = compressor_of(agent)
    budget = min(compressor.policy.staying_budget, view_tokens(view) // 3)
    result = await compressor.compress(agent.session_id, Request(must_fit=True, budget=budget))
    return result.outcome == "done"


def compress_when_idle(agent: Agent) -> None:
    """Ahead of the next message: when the conversation is long and nobody speaks for a while."""
    if agent.policy.compress_idle <= 0:
        return

    async def wait_and_compress() -> None:
        turn = agent.turns
        await agent.clock.sleep(agent.policy.compress_idle)
        compressor = compressor_of(agent)
        view = await agent.store.view(agent.session_id)
        if agent.turns == turn and view_tokens(view) > compressor.policy.limit:
            await compressor.compress(agent.session_id, Request(automatic=True))

    agent.idle_work = asyncio.create_task(wait_and_compress())


def describe(result: CompressionResult) -> str:
    """One line for a person."""
    if result.outcome == "done":
        return (
            f"Compressed: ~{result.before:,} to ~{result.after:,} tokens, {len(result.messages)} messages stay whole. "
            f"Before it: {result.snapshot_id}"
        )
    if result.outcome == "failed":
        return f"Compression failed, nothing was removed: {result.reason}"
    return f"Not compressed: {result.reason}"


def view_tokens(view: LiveView) -> int:
    """About how many tokens a view has in a request."""
    return estimate_tokens(view.summary or "") + sum(map(message_tokens, view.messages))


async def _last_look(agent: Agent, leaving: Sequence[Message]) -> None:
    """The built-in notes and the provider see what is about to leave the window."""
    await asyncio.gather(agent.memory.before_compress(leaving), review_messages(agent, leaving))
