"""The memory of a conversation for tests: a real store, a plugin that records or misbehaves, and deliveries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hermes.clock import Clock, SystemClock
from hermes.db.engine import Tx
from hermes.memory.active import ActiveProvider, Deadlines, Surroundings
from hermes.memory.caller import Memory
from hermes.memory.deliveries import Deliveries
from hermes.memory.notes import Notes
from hermes.memory.registry import Factory
from hermes.memory.values import Conversation
from hermes.scope import Owner
from hermes.store.store import Store
from hermes.types import Draft, Message
from tests.memory.providers import CONVERSATION, PATIENT


@asynccontextmanager
async def active(
    home: Path, make: Factory, deadlines: Deadlines = PATIENT, *, clock: Clock | None = None, delivers: bool = True
) -> AsyncIterator[ActiveProvider]:
    """Open the provider `troubled` over the store of `home`, as one process would."""
    async with await Store.open(home / "state.db", clock=clock or SystemClock(), lock_timeout=30.0) as store:
        provider = ActiveProvider("troubled", make, store, Surroundings(home), deadlines)
        deliveries = Deliveries(provider, "test", 4)
        if delivers:
            deliveries.start()
        try:
            yield provider
        finally:
            await deliveries.finish(1.0)
            await provider.close()


async def begin(provider: ActiveProvider, conversation: Conversation = CONVERSATION) -> Memory:
    """Return the memory of a conversation, creating its session if necessary."""
    store = provider.store
    if not await store.read(lambda tx: store.sessions.exists(tx, conversation.session_id)):
        await store.create_session(conversation.platform, session_id=conversation.session_id)
    return Memory(provider, conversation, notes_of(provider))


async def begin_well(provider: ActiveProvider, conversation: Conversation = CONVERSATION) -> Memory:
    """Return the memory once its session is open, so that later lateness is not due to the start."""
    memory = await begin(provider, conversation)
    await memory.tools(memory.begin())
    await memory.settle()
    return memory


def notes_of(provider: ActiveProvider) -> Notes:
    """Return the owner's notes in the home of a provider's store."""
    return Notes(provider.store.db.path.parent, Owner(), {"memory": 2200, "user": 1400})


async def say(memory: Memory, text: str, session_id: str = CONVERSATION.session_id) -> Message:
    """Do the first commit of a turn."""
    store = memory.provider.store

    def accept(tx: Tx) -> Message:
        [message] = store.messages.append(tx, session_id, [Draft("user", text)], now=store.clock.now())
        memory.said(tx, [message])
        return message

    return await store.write(accept)


async def reply(memory: Memory, text: str, session_id: str = CONVERSATION.session_id) -> Message:
    """Do the last commit of a turn."""
    store = memory.provider.store

    def conclude(tx: Tx) -> Message:
        [message] = store.messages.append(tx, session_id, [Draft("assistant", text)], now=store.clock.now())
        memory.replied(tx, message)
        return message

    return await store.write(conclude)


async def turn(memory: Memory, text: str = "hello", session_id: str = CONVERSATION.session_id) -> str:
    """Run all memory calls of a turn, and return the recalled text."""
    said = await say(memory, text, session_id)
    until = memory.begin()
    await memory.prompt_block(until)
    await memory.tools(until)
    recalled = await memory.recall([said], until)
    await reply(memory, f"reply to {text}", session_id)
    await memory.turn_over()
    memory.after_turn([said])
    return recalled.text


async def live(memory: Memory) -> None:
    """Run a turn and its background work."""
    await turn(memory)
    memory.note_written("user", "add", "likes figs")
    await memory.delegated("task", "result")
    await memory.call_tool("lookup", {"what": "figs"}, "k")
    await memory.before_compress([])
    await memory.retitled("Figs")
    await memory.settle()
