"""Measures what memory adds to a turn: the same turn with Honcho on a real server and without memory, in turn.

The model answers at once, so all of a turn is ours. Nothing is delivered while it is measured. A turn begins when the
preparation of the last has ended, as it has when a person takes longer to write than a server to answer.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from bench.table import Row, report, summarise
from hermes.agent.agent import Agent, Policy
from hermes.agent.builtin_tools import builtin_tools
from hermes.agent.turn import run_turn
from hermes.clock import SystemClock
from hermes.honcho.plugin import HonchoPlugin
from hermes.llm.events import Reply
from hermes.memory.active import ActiveProvider, Surroundings
from hermes.memory.caller import Memory
from hermes.memory.no_memory import NoMemory
from hermes.memory.notes import Notes
from hermes.memory.provider import Conversation, Speaker
from hermes.scope import Owner
from hermes.store.store import Store
from tests.honcho.between import Between, Instead, like_a_model
from tests.llm.scripted import ScriptedModel
from tests.memory_server.serving import inside, running
from tests.memory_server.talking import say, settle

TURNS, WARM_UP = 200, 10
FACT_COUNT = 200
QUESTION = "Which book of mine was about boats, and where do I keep it?"


def run() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, running(Path(folder) / "memory") as served:
        with inside(served, "bench") as http:
            http.post("/sessions", json={"id": "told", "peers": {"ann": {}, "bot": {"observe_others": True}}})
            for start in range(0, FACT_COUNT, 50):
                say(http, "told", *(f"I own book number {one}, about boats." for one in range(start, start + 50)))
            settle(http)
        rows: list[Row] = []
        with Between(served.url) as model, Between(served.url) as dead:
            model.rule = like_a_model("She means the atlas on the upper shelf.")
            dead.rule = lambda _: Instead({"detail": "out of order"}, status=503)
            for name, url in (
                ("recall ready, server without a model", served.url),
                ("recall ready, server with a model", model.url),
                ("server that answers 503", dead.url),
            ):
                rows += asyncio.run(_compare(Path(folder), name, url))
    report("Remembering: what memory adds to a turn", rows)


async def _compare(folder: Path, name: str, url: str) -> list[Row]:
    home = Path(tempfile.mkdtemp(dir=folder))
    (home / "honcho.json").write_text(
        json.dumps({"baseUrl": url, "workspace": "bench", "peerName": "ann", "aiPeer": "bot"}), encoding="utf-8"
    )
    with_memory: list[float] = []
    without: list[float] = []
    async with open_agent(home, remembers=True) as knowing, open_agent(home, remembers=False) as bare:
        for number in range(WARM_UP + TURNS):
            for agent, taken in ((knowing, with_memory), (bare, without)):
                seconds = await time_turn(agent)
                if number >= WARM_UP:
                    taken.append(seconds)
    base = summarise(f"no memory, beside: {name}", without)
    return [base, summarise(name, with_memory, base)]


async def time_turn(agent: Agent) -> float:
    """Return the seconds of a turn, after the preparation of the next one has ended."""
    begun = time.perf_counter()
    async with aclosing(run_turn(agent, QUESTION, asyncio.Event())) as events:
        async for _ in events:
            pass
    taken = time.perf_counter() - begun
    await agent.memory.settle()
    return taken


@asynccontextmanager
async def open_agent(home: Path, *, remembers: bool) -> AsyncIterator[Agent]:
    """Open an agent with Honcho as the home configures it, or without memory."""
    name = "knowing" if remembers else "bare"
    async with await Store.open(home / f"{name}.db", clock=SystemClock(), lock_timeout=30.0) as store:
        notes = Notes(home, Owner(), {"memory": 2200, "user": 1400})
        provider = ActiveProvider("honcho", HonchoPlugin, store, Surroundings(home)) if remembers else None
        conversation = Conversation(name, "cli", "everything", Speaker(is_owner=True))
        await store.create_session("cli", session_id=name)
        answer: Callable[..., Reply] = lambda _: Reply("fine")  # noqa: E731
        agent = Agent(
            session_id=name,
            store=store,
            model=ScriptedModel(answer),
            memory=Memory(provider, conversation, notes) if provider else NoMemory(),
            notes=notes,
            soul_file=home / "SOUL.md",
            owner="bench",
            policy=Policy(review_every=0),
            tools=builtin_tools,
        )
        try:
            yield agent
        finally:
            await agent.close()
            if provider:
                await provider.close()
