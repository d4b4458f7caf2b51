"""Measures the cost of memory in a gateway: `python -m bench gateway_memory`. Eight chats talk in parallel, with memory
on (Honcho on the embedded server, as in a fresh home) and off, in alternating rounds.

Printed are turns per second, the gateway's processor time per turn (deliveries included), memory's share of a warm
turn, and, with as many busy processes beside it as `BENCH_BUSY` says, the turns that had no evidence.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from bench.gateway import Bench, Client, ask_arrivals, running
from bench.table import Row, report, summarise
from hermes.embedded.connect import stop
from hermes.embedded.rendezvous import Place, read_rendezvous

CHAT_COUNT = 8
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
TURNS = int(os.environ.get("BENCH_TURNS", "12"))
"""Turns of each chat in a round; even ones tell a fact, odd ones ask for one."""
BUSY = int(os.environ.get("BENCH_BUSY", "8"))
BUSY_TURN_COUNT = 200
SETTLE_SECONDS = 120.0
PEOPLE = ("sister", "uncle", "neighbour", "cousin", "colleague", "grandmother", "dentist", "landlord")
THINGS = ("stamps", "clocks", "canaries", "orchids", "bicycles", "violins", "kites", "teapots", "maps", "bees", "drums")
TOWNS = ("Ghent", "Porto", "Oslo", "Malmö", "Graz", "Turin", "Cork", "Brno", "Vigo", "Lille", "Riga", "Pisa", "Bergen")
FACTS = [
    (f"My {person} keeps {thing} in {town}.", f"Where does my {person} keep {thing}?")
    for person, thing, town in product(PEOPLE, THINGS, TOWNS)
][::7]


@dataclass
class Cost:
    """The cost of a gateway's rounds."""

    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    server_cpu: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    """Seconds from the request to the model's request, in a single chat."""


def run() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, ExitStack() as stack:
        on = stack.enter_context(_gateway(Path(folder) / "on", "honcho"))
        off = stack.enter_context(_gateway(Path(folder) / "off", "none"))
        costs = asyncio.run(_alternate([on, off]))
        _print_costs(*costs)
        if BUSY:
            with _busy_processes(BUSY):
                without = asyncio.run(_count_without_evidence(on))
            print(f"{without} of {BUSY_TURN_COUNT} turns without evidence, {BUSY} busy processes beside it")  # noqa: T201


async def _alternate(gateways: Sequence[Bench]) -> list[Cost]:
    costs = [Cost() for _ in gateways]
    for gateway in gateways:
        await _talk_at_once(gateway, "warm")
        await _settle(gateway)
    for number in range(ROUNDS):
        for gateway, cost in zip(gateways, costs, strict=True):
            before, server_before = _cpu_seconds(gateway.pid), _server_cpu_seconds(gateway)
            cost.rates.append(await _talk_at_once(gateway, f"round {number}"))
            await _settle(gateway)
            cost.cpu.append((_cpu_seconds(gateway.pid) - before) / (CHAT_COUNT * TURNS))
            cost.server_cpu.append((_server_cpu_seconds(gateway) - server_before) / (CHAT_COUNT * TURNS))
        for gateway, cost in zip(gateways, costs, strict=True):
            cost.waits += await _talk_alone(gateway, f"alone {number}")
            await _settle(gateway)
    return costs


async def _talk_at_once(gateway: Bench, label: str) -> float:
    """Run all chats in parallel and return turns per second."""
    begun = time.monotonic()
    await asyncio.gather(*(_talk(gateway, f"chat{number}", f"{label} {number}") for number in range(CHAT_COUNT)))
    return CHAT_COUNT * TURNS / (time.monotonic() - begun)


async def _talk(gateway: Bench, session: str, label: str) -> dict[str, float]:
    client = await Client(gateway).open()
    sent = {}
    start = sum(map(ord, label)) * 31
    for turn in range(TURNS):
        text = f"{FACTS[(start + turn // 2) % len(FACTS)][turn % 2]} ({label} {turn})"
        sent[text], _ = await client.say(session, text)
    client.close()
    return sent


async def _talk_alone(gateway: Bench, label: str) -> list[float]:
    sent = await _talk(gateway, "alone", label)
    arrivals = await ask_arrivals(gateway)
    return [arrivals[text] - begun for text, begun in sent.items()]


async def _count_without_evidence(gateway: Bench) -> int:
    """Ask for earlier facts, each in a new chat, and count the turns without evidence."""
    with closing(sqlite3.connect(gateway.home / "state.db", timeout=30)) as db:
        (before,) = db.execute("SELECT max(at) FROM hermes_injections").fetchone()

    async def ask(number: int) -> None:
        client = await Client(gateway).open()
        for turn in range(number, BUSY_TURN_COUNT, CHAT_COUNT):
            await client.say(f"busy{turn}", f"{FACTS[turn % len(FACTS)][1]} (busy {turn})")
        client.close()

    await asyncio.gather(*(ask(number) for number in range(CHAT_COUNT)))
    with closing(sqlite3.connect(gateway.home / "state.db", timeout=30)) as db:
        rows = db.execute("SELECT record FROM hermes_injections WHERE at > ?", (before,)).fetchall()
    records = [json.loads(record) for (record,) in rows]
    with_evidence = sum(any(part["layer"] in ("evidence", "nearest") for part in one["parts"]) for one in records)
    return BUSY_TURN_COUNT - with_evidence


def _print_costs(on: Cost, off: Cost) -> None:
    share = statistics.median(on.waits) - statistics.median(off.waits)
    base = summarise("request to model, memory off", off.waits)
    rows = [base, summarise("request to model, memory on", on.waits, base), Row("memory's share", share, share)]
    report("Gateway_memory: one warm chat", rows)
    for name, cost in (("on", on), ("off", off)):
        rate, cpu, server = map(statistics.median, (cost.rates, cost.cpu, cost.server_cpu))
        spent = f"{cpu * 1000:.1f} ms CPU per turn in the gateway, {server * 1000:.1f} ms in the memory server"
        print(f"memory {name}: {rate:.0f} turns/s with {CHAT_COUNT} chats, {spent}")  # noqa: T201


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _server_cpu_seconds(gateway: Bench) -> float:
    found = read_rendezvous(Place(gateway.home / "memory", gateway.home).rendezvous)
    return 0.0 if found is None else _cpu_seconds(found.pid)


async def _settle(gateway: Bench) -> None:
    """Return when everything was delivered."""
    until = time.monotonic() + SETTLE_SECONDS
    with closing(sqlite3.connect(gateway.home / "state.db", timeout=30)) as db:
        while time.monotonic() < until:
            (left,) = db.execute("SELECT count(*) FROM hermes_queue WHERE state = 'waiting'").fetchone()
            if not left:
                return
            await asyncio.sleep(0.2)
    raise TimeoutError(f"{left} entries were not delivered")


@contextmanager
def _gateway(home: Path, provider: str) -> Iterator[Bench]:
    with running(home, provider) as gateway:
        yield gateway
    stop(Place(home / "memory", home))


@contextmanager
def _busy_processes(count: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
