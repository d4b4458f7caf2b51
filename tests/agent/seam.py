"""An agent for tests of memory: a real store, real notes, a scripted model and a provider that records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from hermes.agent.agent import Agent, Policy
from hermes.agent.builtin_tools import builtin_tools
from hermes.agent.turn import run_turn
from hermes.clock import Clock, SystemClock
from hermes.events import TurnEvent
from hermes.llm.events import Reply
from hermes.llm.model import ModelRequest
from hermes.memory.active import ActiveProvider, Deadlines, Surroundings
from hermes.memory.caller import Memory
from hermes.memory.deliveries import Deliveries
from hermes.memory.no_memory import NoMemory
from hermes.memory.notes import Notes
from hermes.memory.values import Conversation
from hermes.scope import Owner
from hermes.store.store import Store
from hermes.types import ToolCall
from tests.llm.scripted import ScriptedAnswer, ScriptedModel
from tests.memory.providers import OWNER, PATIENT, Recorder


class AdvancedClock(SystemClock):
    """The system clock plus an offset that a test sets."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


Script = Iterable[ScriptedAnswer] | Callable[[ModelRequest], ScriptedAnswer]


def calls(name: str, call_id: str = "c1", **arguments: Any) -> Reply:
    """Return a reply that calls one tool."""
    return Reply(tool_calls=(ToolCall(call_id, name, json.dumps(arguments)),))


@asynccontextmanager
async def open_seam(
    home: Path,
    script: Script,
    plugin: Recorder | None = None,
    policy: Policy | None = None,
    *,
    session_id: str | None = None,
    deadlines: Deadlines = PATIENT,
    clock: Clock | None = None,
) -> AsyncIterator[Agent]:
    """Open an agent in the store of `home`, with a new session or the given one."""
    home.mkdir(parents=True, exist_ok=True)
    async with await Store.open(home / "state.db", clock=clock or SystemClock(), lock_timeout=30.0) as store:
        session_id = session_id or (await store.create_session("cli")).id
        notes = Notes(home, Owner(), {"memory": 2200, "user": 1400})
        provider = plugin and ActiveProvider(plugin.name, plugin, store, Surroundings(home), deadlines)
        deliveries = provider and Deliveries(provider, "test", 4)
        if deliveries:
            deliveries.start()
        conversation = Conversation(session_id, "cli", "everything", OWNER)
        agent = Agent(
            session_id=session_id,
            store=store,
            model=ScriptedModel(script),
            memory=Memory(provider, conversation, notes) if provider else NoMemory(),
            notes=notes,
            soul_file=home / "SOUL.md",
            owner="test",
            policy=policy or Policy(review_every=0),
            tools=builtin_tools,
        )
        try:
            yield agent
        finally:
            await agent.close()
            if provider and deliveries:
                await deliveries.finish(10.0)
                await provider.close()


async def say(agent: Agent, text: str) -> list[TurnEvent]:
    """Run one turn and return its events, after the provider has received its entries."""
    async with aclosing(run_turn(agent, text, asyncio.Event())) as events:
        seen = [event async for event in events]
    await settle(agent)
    return seen


async def settle(agent: Agent) -> None:
    """Wait until background work has ended and the provider has received all entries that can be sent now."""
    await agent.memory.settle()
    if isinstance(agent.memory, Memory):
        await agent.memory.flush(60.0)
        await agent.memory.provider.flush("notes", 60.0)


async def finish(agent: Agent) -> None:
    """Wait for running reviews."""
    while agent.background:
        await asyncio.wait(agent.background)
    await settle(agent)


def requests(agent: Agent) -> list[ModelRequest]:
    """Return the requests that the scripted model received."""
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests


def offered(request: ModelRequest) -> set[str]:
    """Return the names of a request's tools."""
    return {spec.name for spec in request.tools}
