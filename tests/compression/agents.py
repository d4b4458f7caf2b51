"""Whole agents for tests of compression: real store and notes, a scripted model, with or without a provider."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from hermes.agent.agent import Agent, Policy
from hermes.agent.tools import Tool
from hermes.agent.turn import run_turn
from hermes.db.leases import new_owner
from hermes.events import TurnEvent
from hermes.llm.model import Model
from hermes.memory.active import ActiveProvider, Deadlines, Surroundings
from hermes.memory.caller import Memory
from hermes.memory.no_memory import NoMemory
from hermes.memory.notes import Notes
from hermes.memory.values import Conversation, Speaker
from hermes.scope import Owner
from hermes.store.store import Store
from tests.memory.providers import PATIENT, Recorder


def no_tools(_: Agent) -> list[Tool]:
    return []


def make_agent(
    store: Store,
    session_id: str,
    model: Model,
    *,
    policy: Policy | None = None,
    plugin: Recorder | None = None,
    deadlines: Deadlines = PATIENT,
    tools: Callable[[Agent], list[Tool]] = no_tools,
) -> Agent:
    """An agent whose home is the store's folder, without reviews unless the policy enables them."""
    home = store.db.path.parent
    notes = Notes(home, Owner(), {"memory": 2200, "user": 1400})
    provider = plugin and ActiveProvider(plugin.name, plugin, store, Surroundings(home), deadlines)
    conversation = Conversation(session_id, "cli", "everything", Speaker(is_owner=True))
    return Agent(
        session_id=session_id,
        store=store,
        model=model,
        memory=Memory(provider, conversation, notes) if provider else NoMemory(),
        notes=notes,
        soul_file=home / "SOUL.md",
        owner=new_owner(),
        policy=policy or Policy(review_every=0),
        tools=tools,
    )


async def take_turn(agent: Agent, text: str, stop: asyncio.Event | None = None) -> list[TurnEvent]:
    """Return every event of one turn."""
    async with aclosing(run_turn(agent, text, stop or asyncio.Event())) as events:
        return [event async for event in events]
