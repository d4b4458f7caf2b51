"""Measures writes to Honcho: the addition to a turn's two commits during deliveries, and the speed of a backlog to our
own memory server.

`python -m bench honcho_writing`; BENCH_BACKLOG is the number of entries (default 2,000).
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from pathlib import Path

from bench.embedded import new_place
from bench.table import Row, report, summarise
from hermes.clock import SystemClock
from hermes.db.engine import Tx
from hermes.db.leases import new_owner
from hermes.honcho.plugin import HonchoPlugin
from hermes.memory.active import ActiveProvider, Surroundings
from hermes.memory.caller import Memory
from hermes.memory.deliveries import Deliveries
from hermes.memory.no_memory import NoMemory
from hermes.memory.notes import Notes
from hermes.memory.values import Conversation, Speaker
from hermes.scope import OWNER
from hermes.store.store import Store
from hermes.types import Draft

TURN_COUNT = 200
BACKLOG = int(os.environ.get("BENCH_BACKLOG", "2000"))
BATCH_SIZE = 500
LANE_COUNT = 8
TEXT = "I collect stamps from Malta and sometimes from Gozo. " * 4


def run() -> None:
    """Measure and print."""
    with new_place() as place:
        settings = {"server": "embedded", "peerName": "ann"}
        (place.home / "honcho.json").write_text(json.dumps(settings), encoding="utf-8")
        report("Honcho: writing to our own memory server", asyncio.run(_measure(place.home)))


async def _measure(home: Path) -> list[Row]:
    env = {"HOME": str(home), "LOGNAME": "ann"}
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
        provider = ActiveProvider("honcho", HonchoPlugin, store, Surroundings(home, None, env))
        deliveries = Deliveries(provider, new_owner(), LANE_COUNT)
        deliveries.start()
        memories = [await _begin(provider, f"s{number}") for number in range(LANE_COUNT)]
        await _turn(store, memories[0], "s0")
        await _drain(deliveries)
        without, within = [], []
        for _ in range(TURN_COUNT):
            without.append(await _turn(store, NoMemory(), "s1"))
            within.append(await _turn(store, memories[0], "s0"))
        base = summarise("two commits without a provider", without)
        added = statistics.median(within) - statistics.median(without)
        rows = [
            base,
            summarise("two commits while Honcho is written to", within, base),
            summarise("added to a turn, the difference of the medians", [added]),
        ]
        await _drain(deliveries)
        await deliveries.finish(10.0)
        for start in range(0, BACKLOG, BATCH_SIZE):
            await store.write(lambda tx, start=start: _record(store, memories, tx, start))  # type: ignore[misc]
        deliveries = Deliveries(provider, new_owner(), LANE_COUNT)
        began = time.perf_counter()
        deliveries.start()
        await _drain(deliveries)
        each = (time.perf_counter() - began) / BACKLOG
        rows.append(summarise(f"one entry of a backlog of {BACKLOG} ({1 / each:.0f}/s)", [each]))
        await deliveries.finish(10.0)
        for memory in memories:
            await memory.close()
        await provider.close()
    return rows


async def _begin(provider: ActiveProvider, session_id: str) -> Memory:
    await provider.store.create_session("cli", session_id=session_id)
    folder = Path("/bench") / session_id
    about = Conversation(session_id, "cli", "everything", Speaker(is_owner=True), directory=folder)
    memory = Memory(provider, about, Notes(provider.store.db.path.parent, OWNER, {}))
    await memory.tools(memory.begin())
    return memory


async def _turn(store: Store, memory: Memory | NoMemory, session_id: str) -> float:
    """Return the seconds of a turn's commits."""

    def accept(tx: Tx) -> None:
        memory.said(tx, store.messages.append(tx, session_id, [Draft("user", TEXT)], now=store.clock.now()))

    def conclude(tx: Tx) -> None:
        [reply] = store.messages.append(tx, session_id, [Draft("assistant", TEXT)], now=store.clock.now())
        memory.replied(tx, reply)

    start = time.perf_counter()
    await store.write(accept)
    await store.write(conclude)
    taken = time.perf_counter() - start
    await memory.turn_over()
    return taken


def _record(store: Store, memories: list[Memory], tx: Tx, start: int) -> None:
    for number in range(start, min(start + BATCH_SIZE, BACKLOG), 2):
        lane = number // 2 % LANE_COUNT
        memory, session_id, now = memories[lane], f"s{lane}", store.clock.now()
        memory.said(tx, store.messages.append(tx, session_id, [Draft("user", TEXT)], now=now))
        [reply] = store.messages.append(tx, session_id, [Draft("assistant", TEXT)], now=now)
        memory.replied(tx, reply)


async def _drain(deliveries: Deliveries) -> None:
    while (await deliveries.left()).entries:  # noqa: ASYNC110 - what is left is in the store
        await asyncio.sleep(0.25)  # counting takes long where much is left
