"""Agents for tests: a real store and notes, a scripted model, no provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path

from hermes.agent.agent import Agent, Policy
from hermes.agent.builtin_tools import builtin_tools
from hermes.agent.tools import Tool
from hermes.agent.turn import run_turn
from hermes.db.leases import new_owner
from hermes.events import Failed, Replied, Stopped, TurnEvent
from hermes.llm.model import Model
from hermes.memory.active import ActiveProvider, Surroundings
from hermes.memory.caller import Memory
from hermes.memory.no_memory import NoMemory
from hermes.memory.notes import Notes
from hermes.memory.values import Conversation
from hermes.scope import Owner
from hermes.store.held_lease import LaneOptions
from hermes.store.store import Store
from hermes.types import Json, Message, Session
from tests.memory.providers import OWNER, PATIENT, Recorder

TERMS = LaneOptions(ttl=30.0, poll=0.02, timeout=100.0)


def make_agent(
    store: Store,
    session_id: str,
    model: Model,
    *,
    tools: Callable[[Agent], list[Tool]] = builtin_tools,
    max_steps: int = 30,
    terms: LaneOptions = TERMS,
    plugin: Recorder | None = None,
) -> Agent:
    """Return an agent over `store`, with the store's folder as its home."""
    home = store.db.path.parent
    notes = Notes(home, Owner(), {"memory": 2200, "user": 1400})
    provider = plugin and ActiveProvider(plugin.name, plugin, store, Surroundings(home), PATIENT)
    conversation = Conversation(session_id, "cli", "everything", OWNER)
    return Agent(
        session_id=session_id,
        store=store,
        model=model,
        memory=Memory(provider, conversation, notes) if provider else NoMemory(),
        notes=notes,
        soul_file=home / "SOUL.md",
        owner=new_owner(),
        policy=Policy(max_steps=max_steps, review_every=0, lane=terms),
        tools=tools,
    )


def lending(store: Store, model: Model, policy: Policy) -> Callable[[Session], AbstractAsyncContextManager[Agent]]:
    """Return a function that opens an agent for a session, as the front ends do."""

    @asynccontextmanager
    async def lend(session: Session) -> AsyncIterator[Agent]:
        agent = make_agent(store, session.id, model)
        agent.policy = policy
        yield agent
        await agent.close()

    return lend


async def take_turn(agent: Agent, text: str, stop: asyncio.Event | None = None) -> list[TurnEvent]:
    """Return the events of one turn; check what holds for every turn."""
    async with aclosing(run_turn(agent, text, stop or asyncio.Event())) as events:
        seen = [event async for event in events]
    check_ending(seen)
    return seen


def check_ending(events: Sequence[TurnEvent]) -> None:
    """Check that exactly one of Replied, Stopped, Failed was sent, and last."""
    assert [event for event in events if isinstance(event, Replied | Stopped | Failed)] == list(events[-1:])


async def stored(store: Store, session_id: str) -> list[Message]:
    """Return all messages of a session, in order."""
    return await store.read(lambda tx: list(store.messages.history(tx, session_id)))


async def spoken(store: Store, session_id: str) -> list[tuple[str, str | None]]:
    """Return role and content of all messages of a session."""
    return [(message.role, message.content) for message in await stored(store, session_id)]


def check_conversation(messages: Sequence[dict[str, Json]]) -> None:
    """Check the rules of every endpoint: each call is answered once, directly after it, and no other result exists."""
    waiting: list[str] = []
    for message in messages:
        assert message["role"] in ("system", "user", "assistant", "tool")
        assert isinstance(message["content"], str)
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "a result without a call"
            waiting.remove(message["tool_call_id"])
            continue
        assert waiting == [], "a call without a result"
        calls = message.get("tool_calls", [])
        assert message["content"] or calls, "an empty message"
        assert message["role"] == "assistant" or not calls
        waiting = [call["id"] for call in calls]
        assert len(set(waiting)) == len(waiting), "two calls with one id"
    assert waiting == [], "a call without a result"


def notes_text(folder: Path) -> str:
    """Return the content of MEMORY.md; "" if it does not exist."""
    path = folder / "memories" / "MEMORY.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""
