"""An agent for tests of memory: a real store, real notes, a scripted model and a provider that records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from hermes.agent.agent import Agent, Policy
from hermes.agent.turn import run_turn
from hermes.assembly import builtin_tools
from hermes.clock import SystemClock
from hermes.events import TurnEvent
from hermes.llm.events import Reply
from hermes.llm.model import ModelRequest
from hermes.llm.scripted import Answer, ScriptedModel
from hermes.memory.caller import Memory
from hermes.memory.notes import Notes
from hermes.memory.provider import MemoryProvider
from hermes.store.store import Store
from hermes.types import ToolCall
from tests.memory.providers import CONTEXT, PATIENT

Script = Iterable[Answer] | Callable[[ModelRequest], Answer]


def calls(name: str, call_id: str = "c1", **arguments: Any) -> Reply:
    """A reply that calls one tool."""
    return Reply(tool_calls=(ToolCall(call_id, name, json.dumps(arguments)),))


@asynccontextmanager
async def open_seam(
    home: Path, script: Script, provider: MemoryProvider | None = None, policy: Policy | None = None
) -> AsyncIterator[Agent]:
    """An agent with a session of its own in the store of `home`."""
    home.mkdir(parents=True, exist_ok=True)
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
        agent = Agent(
            session_id=(await store.create_session("cli")).id,
            store=store,
            model=ScriptedModel(script),
            memory=Memory("recorder", (lambda: provider) if provider else None, CONTEXT, PATIENT),
            notes=Notes(home, {"memory": 2200, "user": 1400}),
            soul_file=home / "SOUL.md",
            owner="test",
            policy=policy or Policy(review_every=0),
            tools=builtin_tools,
        )
        try:
            yield agent
        finally:
            await agent.close()


async def say(agent: Agent, text: str) -> list[TurnEvent]:
    """One turn, and what happened in it; the provider has heard of it when this returns."""
    async with aclosing(run_turn(agent, text, asyncio.Event())) as events:
        seen = [event async for event in events]
    await agent.memory.settle()
    return seen


def requests(agent: Agent) -> list[ModelRequest]:
    """What the scripted model was asked."""
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests


def offered(request: ModelRequest) -> set[str]:
    """The tools of a request."""
    return {spec.name for spec in request.tools}
