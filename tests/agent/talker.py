"""A process that runs one turn, pauses after half a reply, and continues on a line from stdin. Each event is a line of
JSON."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path

from hermes.agent.turn import run_turn
from hermes.cli.chat import event_line
from hermes.clock import SystemClock
from hermes.llm.events import Completed, Reply, TextPiece
from hermes.store.held_lease import LaneOptions
from hermes.store.store import Store
from tests.agent.agents import make_agent
from tests.llm.scripted import ScriptedModel


async def talk(path: Path, session_id: str, ttl: float) -> None:
    """Run one turn."""
    go = asyncio.Event()
    model = ScriptedModel([[TextPiece("half"), go, TextPiece(" whole"), Completed(Reply(text="half whole"))]])
    async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:
        agent = make_agent(store, session_id, model, terms=LaneOptions(ttl=ttl, poll=0.02, timeout=30.0))
        async with aclosing(run_turn(agent, "from the talker", asyncio.Event())) as events:
            async for event in events:
                sys.stdout.write(event_line(event) + "\n")
                sys.stdout.flush()
                if event.__class__.__name__ == "TextDelta" and not go.is_set():
                    await asyncio.to_thread(sys.stdin.readline)
                    go.set()


if __name__ == "__main__":
    asyncio.run(talk(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
