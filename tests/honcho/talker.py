"""A host that talks: `python -m tests.honcho.talker HOME TURNS` runs this number of turns, resumes after a kill, and
exits when all is delivered. After each turn it prints the turn's number and waits for a line on stdin until its end."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from hermes.clock import SystemClock
from hermes.db.engine import Tx
from hermes.db.leases import new_owner
from hermes.honcho.plugin import HonchoPlugin
from hermes.memory.active import ActiveProvider, Surroundings
from hermes.memory.caller import Memory
from hermes.memory.deliveries import Deliveries
from hermes.memory.values import Conversation
from hermes.store.store import Store
from hermes.types import Draft
from tests.memory.remembering import begin, reply

PEOPLE: tuple[dict[str, Any], ...] = (
    {"author_id": "17", "author_name": "Ann"},
    {"author_id": "23", "author_name": "Bob"},
    {"author_id": "42", "author_is_owner": True},
)
PEERS = ("17", "23", "ann")
"""The people's peers, where `peerName` is `ann`."""
MAX_PENDING_ENTRIES = 20
"""Entries that may be pending while people talk."""
GROUP = Conversation("s1", "telegram", "here", None, "group", "agent:main:telegram:group:-100")


async def talk(home: Path, turns: int) -> None:
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
        provider = ActiveProvider("honcho", HonchoPlugin, store, Surroundings(home, None, os.environ))
        deliveries = Deliveries(provider, new_owner(), 4)
        deliveries.start()
        memory = await begin(provider, GROUP)
        said = await store.read(lambda tx: tx.execute("SELECT count(*) FROM messages").fetchone()[0])
        for number in range(said, 2 * turns):
            if number % 2 == 0:
                await _say(memory, number // 2)
            else:
                await memory.tools(memory.begin())
                await reply(memory, f"reply {number // 2}")
                await memory.turn_over()
                sys.stdout.write(f"{number // 2}\n")
                sys.stdout.flush()
                await asyncio.to_thread(sys.stdin.readline)
                await _until_at_most(deliveries, MAX_PENDING_ENTRIES)
        await _until_at_most(deliveries, 0)
        await deliveries.finish(1.0)
        await memory.close()
        await provider.close()


async def _until_at_most(deliveries: Deliveries, entries: int) -> None:
    while (await deliveries.left()).entries > entries:  # noqa: ASYNC110 - another process may deliver them
        await asyncio.sleep(0.02)


async def _say(memory: Memory, turn: int) -> None:
    store, draft = memory.provider.store, Draft("user", f"turn {turn}", **PEOPLE[turn % len(PEOPLE)])

    def accept(tx: Tx) -> None:
        memory.said(tx, store.messages.append(tx, GROUP.session_id, [draft], now=store.clock.now()))

    await store.write(accept)


if __name__ == "__main__":
    asyncio.run(talk(Path(sys.argv[1]), int(sys.argv[2])))
