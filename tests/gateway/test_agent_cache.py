"""The agent cache: which agent a message gets, and when one is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from hermes.agent.agent import Agent
from hermes.gateway.agent_cache import NOBODY, AgentCache, Person
from hermes.memory.no_memory import NoMemory
from hermes.memory.values import Ending
from hermes.scope import OWNER, Group, Guest, Scope
from hermes.store.store import Store
from hermes.types import Session
from tests.agent.agents import make_agent
from tests.gateway.core import echo
from tests.llm.scripted import ScriptedModel


@dataclass
class Bench:
    """A cache of agents that record when they are closed."""

    store: Store
    signature: str = "one"
    time: float = 0.0
    made: list[Agent] = field(default_factory=list)
    closed: list[Agent] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    slow_to_close: asyncio.Event | None = None

    def cache(self, *, largest: int = 100, idle: float = 60.0) -> AgentCache:
        async def signature() -> str:
            return self.signature

        return AgentCache(make=self.make, signature=signature, largest=largest, idle=idle, now=lambda: self.time)

    async def make(self, session: Session, scope: Scope, person: Person) -> Agent:
        agent = make_agent(self.store, session.id, ScriptedModel(echo))
        agent.memory = _Closing(person.user_id, lambda why: self._close(agent, why))
        self.made.append(agent)
        return agent

    async def _close(self, agent: Agent, why: Ending) -> None:
        if self.slow_to_close is not None:
            await self.slow_to_close.wait()
        self.closed.append(agent)
        self.endings.append(why)


class _Closing(NoMemory):
    def __init__(self, user_id: str | None, closing: Callable[[Ending], Awaitable[None]]) -> None:
        self.user_id = user_id
        self._closing = closing

    async def close(self, why: Ending = "exit") -> None:
        await self._closing(why)


def session(name: str) -> Session:
    return Session(name, "fake", 0.0, chat_type="dm")


async def use(cache: AgentCache, name: str, person: Person = NOBODY, scope: Scope = OWNER) -> Agent:
    async with cache.use(session(name), f"key:{name}", scope, person) as agent:
        return agent


async def settle() -> None:
    """Run scheduled callbacks."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_same_chat_gets_the_same_agent(store: Store) -> None:
    bench = Bench(store)
    cache = bench.cache()
    assert await use(cache, "a") is await use(cache, "a")
    assert await use(cache, "a") is not await use(cache, "b")
    assert len(bench.made) == 2


@pytest.mark.contract("4.4")
async def test_a_changed_signature_gives_a_fresh_agent_and_closes_the_old_one(store: Store) -> None:
    bench = Bench(store)
    cache = bench.cache()
    old = await use(cache, "a")
    bench.signature = "two"
    new = await use(cache, "a")
    await settle()
    assert new is not old
    assert bench.closed == [old]
    bench.signature = "one"  # back again: the old one is gone for good
    assert await use(cache, "a") not in (old, new)


@pytest.mark.contract("4.4")
async def test_an_agent_in_use_is_closed_only_after_its_turn(store: Store) -> None:
    bench = Bench(store)
    cache = bench.cache(largest=1, idle=5.0)
    async with cache.use(session("a"), "key:a", OWNER, NOBODY) as working:
        bench.time = 100.0
        bench.signature = "two"
        await use(cache, "a")
        await use(cache, "b")
        cache.evict()
        await settle()
        assert working not in bench.closed
    await settle()
    assert working in bench.closed


@pytest.mark.parametrize("largest", [1, 100])
async def test_an_agent_in_use_is_never_evicted(store: Store, largest: int) -> None:
    bench = Bench(store)
    cache = bench.cache(largest=largest, idle=5.0)
    async with cache.use(session("a"), "key:a", OWNER, NOBODY) as working:
        bench.time = 100.0
        await use(cache, "b")
        cache.evict()
        await settle()
        assert working not in bench.closed
        assert await use(cache, "a") is working


async def test_least_recently_used_agents_are_evicted_first(store: Store) -> None:
    bench = Bench(store)
    cache = bench.cache(largest=2)
    a, b = await use(cache, "a"), await use(cache, "b")
    assert await use(cache, "a") is a
    await use(cache, "c")
    await settle()
    assert bench.closed == [b]
    assert len(cache) == 2


async def test_idle_agents_are_evicted(store: Store) -> None:
    bench = Bench(store)
    cache = bench.cache(idle=10.0)
    a = await use(cache, "a")
    bench.time = 8.0
    b = await use(cache, "b")
    bench.time = 12.0
    cache.evict()
    await settle()
    assert (bench.closed, len(cache)) == ([a], 1)
    assert await use(cache, "b") is b


@pytest.mark.contract("4.4")
async def test_agents_are_per_person_in_direct_chats_but_not_in_groups(store: Store) -> None:
    cache = Bench(store).cache()
    ann, bob, alt = Person("ann"), Person("bob"), Person("ann", "@ann")
    assert len({id(await use(cache, "d", person)) for person in (ann, bob, alt, ann)}) == 3
    assert len({id(await use(cache, "g", person, Group("key:g"))) for person in (ann, bob, alt)}) == 1


@pytest.mark.contract("1.9")
async def test_someone_who_is_marked_as_the_owner_gets_another_agent(store: Store) -> None:
    cache, ann = Bench(store).cache(), Person("ann")
    scopes = (Guest("fake", "ann"), OWNER, Guest("fake", "ann"))
    assert len({id(await use(cache, "d", ann, scope)) for scope in scopes}) == 2


async def test_closing_an_agent_blocks_no_message(store: Store) -> None:
    bench = Bench(store, slow_to_close=asyncio.Event())
    cache = bench.cache(largest=1)
    async with asyncio.timeout(60):
        for name in "abc":
            await use(cache, name)
    assert bench.closed == []
    assert bench.slow_to_close is not None
    bench.slow_to_close.set()
    await cache.close()
    assert set(map(id, bench.closed)) == set(map(id, bench.made))


async def test_shutdown_closes_every_agent_once(store: Store) -> None:
    bench = Bench(store)
    cache = bench.cache()
    for name in "abc":
        await use(cache, name)
    cache.retire("b")
    await cache.close()
    assert sorted(agent.session_id for agent in bench.closed) == ["a", "b", "c"]
    assert len(cache) == 0
