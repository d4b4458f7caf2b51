"""Keeps an agent's conversation within the model's window: before a request, on request, and ahead of time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from hermes.agent.agent import Agent
from hermes.agent.review import review_messages
from hermes.compression.compressor import CompressionResult, Compressor, Request
from hermes.compression.cut import CompressionPolicy
from hermes.errors import HermesError
from hermes.llm.tokens import estimate_request, view_tokens
from hermes.types import Json, LiveView, Message, ToolSpec

log = logging.getLogger("hermes.compression")

BUSY_POLL_SECONDS = 0.2


def compressor_of(agent: Agent) -> Compressor:
    """Return a compressor for this agent's session. It holds no state, so each use makes a new one."""
    return Compressor(
        agent.store,
        None if agent.answers_from_memory else agent.model,
        _policy_of(agent, agent.model.context_length),
        owner=agent.owner,
        deadline=agent.policy.compress_deadline,
        last_look=partial(_last_look, agent),
    )


def _policy_of(agent: Agent, window: int) -> CompressionPolicy:
    return CompressionPolicy(window, agent.policy.compress_at, agent.policy.keep_turns, agent.overhead)


def wait_deadline(agent: Agent) -> float:
    """Return the time at which waiting for another process's compression ends."""
    return agent.clock.now() + agent.policy.compress_deadline


async def make_room(
    agent: Agent,
    window: int,
    view: LiveView,
    messages: Sequence[dict[str, Json]],
    tools: Sequence[ToolSpec],
    until: float,
) -> tuple[int, CompressionResult | None]:
    """Compress the session if a request needs it. Return the request's estimated tokens, and the compression's result.

    The request has `messages` and `tools`, is built from `view` and goes to a model with `window` tokens. A result of
    None means that it can be sent unchanged, or that nothing can be done. After any other result it must be rebuilt;
    "busy" means that another process compressed the session, so it may still be too long. Waiting for other processes
    ends at `until`.
    """
    whole = estimate_request(messages, tools)
    return whole, await _make_room(agent, window, view, whole, until)


async def _make_room(agent: Agent, window: int, view: LiveView, whole: int, until: float) -> CompressionResult | None:
    conversation = view_tokens(view)
    agent.overhead = max(0, whole - conversation)
    policy = _policy_of(agent, window)
    request = Request(automatic=True, must_fit=whole > policy.hard_limit)
    if whole <= policy.limit or (conversation <= policy.room and not request.must_fit):
        return None
    if not (agent.policy.compresses_itself or request.must_fit):
        return None
    compressor = compressor_of(agent)
    if not await compressor.would_try(agent.session_id, request):
        return None
    result = await compressor.compress(agent.session_id, request)
    if result.outcome != "busy":
        return result
    return result if request.must_fit and await _wait_for_others(agent, compressor, until) else None


async def compress_smaller(agent: Agent) -> bool:
    """Compress after the model refused a request as too long, although our estimate fitted. Return True if it is now
    shorter."""
    view = await agent.store.view(agent.session_id)
    compressor = compressor_of(agent)
    budget = max(1, min(compressor.policy.staying_budget, view_tokens(view) // 3))
    request = Request(must_fit=True, budget=budget)
    result = await compressor.compress(agent.session_id, request)
    if result.outcome == "busy":
        await _wait_for_others(agent, compressor, wait_deadline(agent))
        if (await agent.store.view(agent.session_id)).epoch != view.epoch:
            return True
        result = await compressor.compress(agent.session_id, request)
    return result.outcome == "done"


async def _wait_for_others(agent: Agent, compressor: Compressor, until: float) -> bool:
    """Wait while another process compresses the session. Return False if that lasts beyond `until`."""
    while await compressor.is_busy(agent.session_id):
        if agent.clock.now() >= until:
            return False
        await agent.clock.sleep(BUSY_POLL_SECONDS)
    return True


def compress_when_idle(agent: Agent) -> None:
    """Compress a long conversation after an idle time, so that the next message need not wait."""
    if agent.policy.compress_idle <= 0 or not agent.policy.compresses_itself:
        return

    async def wait_and_compress() -> None:
        await agent.clock.sleep(agent.policy.compress_idle)
        try:
            await compress_ahead(agent)
        except HermesError as error:  # nobody waits for the result, so it is logged
            log.warning("session %s could not be compressed ahead: %s", agent.session_id, error.line())

    agent.idle_work = asyncio.create_task(wait_and_compress())


async def compress_ahead(agent: Agent) -> None:
    """Compress a long conversation now, so that its next message need not wait."""
    compressor, request = compressor_of(agent), Request(automatic=True)
    view = await agent.store.view(agent.session_id)
    if view_tokens(view) > compressor.policy.room and await compressor.would_try(agent.session_id, request):
        await compressor.compress(agent.session_id, request)


def announcement(result: CompressionResult) -> str | None:
    """Return a notice for a person about an automatic compression that succeeded, or whose first attempt failed."""
    is_news = result.outcome == "done" or (result.outcome == "failed" and result.failures < 2)
    return describe(result) if is_news else None


def describe(result: CompressionResult) -> str:
    """Describe a compression for a person, in one line."""
    if result.outcome == "done":
        whole = "1 message stays" if len(result.messages) == 1 else f"{len(result.messages)} messages stay"
        return (
            f"Compressed: ~{result.before:,} to ~{result.after:,} tokens, {whole} whole. "
            f"`hermes sessions show {result.snapshot_id}` shows what was there before."
            + (f" Note: {result.reason}." if result.reason else "")
        )
    if result.outcome == "failed":
        return f"Compression failed, nothing was removed: {result.reason}"
    return f"Not compressed: {result.reason}"


async def _last_look(agent: Agent, leaving: Sequence[Message]) -> None:
    """Let the review of notes and the provider read messages before they leave the window."""
    await asyncio.gather(agent.memory.before_compress(leaving), review_messages(agent, leaving))
