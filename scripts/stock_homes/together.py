"""Two programs in one home: ten sessions, notes and configuration, changed in turn and simultaneously."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from scripts.stock_homes.drive import Stock, open_stock
from scripts.stock_homes.loopback import NOTE
from scripts.stock_homes.ours import ask_ours, run_ours
from scripts.stock_homes.recipes import Recipe

SESSIONS, ROUNDS = 10, 3
PARTED = "\n§\n"


async def live_together(python: Path, home: Path) -> list[str]:
    """Return what was lost, duplicated or out of order; empty if nothing was."""
    async with open_stock(python, home, Recipe("together", (), in_place=True)) as stock:
        await stock.start()
        for number in range(SESSIONS):
            await stock.step(f"s{number}@> begin s{number}")
        faults = []
        for turn in range(ROUNDS):
            await _in_turns(stock, home, turn)
            faults += await _at_once(stock, home, turn)
        faults += [fault for number in range(SESSIONS) for fault in await _judge(stock, home, number)]
        faults += [f"{said.text!r} was not answered" for said in stock.said if not said.answered]
    return faults + _judge_notes(home) + _judge_config(home)


async def _in_turns(stock: Stock, home: Path, turn: int) -> None:
    for number in range(SESSIONS):
        await ask_ours(home, f"s{number}", f"ours {turn}.{number}")
        await stock.step(f"s{number}@> stock {turn}.{number}")
    await ask_ours(home, "s0", f"{NOTE}ours {turn}")
    await stock.step(f"s1@> {NOTE}stock {turn}")
    await run_ours(home, "config", "set", "memory.review_every", str(20 + turn))
    await stock.configure("agent.max_turns", str(40 + turn))


async def _at_once(stock: Stock, home: Path, turn: int) -> list[str]:
    """Let both programs write separate sessions and the same notes and settings; return the missing settings."""
    half = SESSIONS // 2
    for number in range(half):
        await asyncio.gather(
            ask_ours(home, f"s{number}", f"{NOTE}ours at once {turn}.{number}"),
            stock.step(f"s{number + half}@> {NOTE}stock at once {turn}.{number}"),
        )
    theirs = asyncio.create_task(stock.configure("agent.gateway_timeout", str(600 + turn)))
    value = 1_000 * (turn + 1)
    while not theirs.done():  # it takes no lock: whatever it writes in between must stay
        value += 1
        await run_ours(home, "config", "set", "gateway.cached_agents", str(value))
    text = (home / "config.yaml").read_text(encoding="utf-8")
    return [f"config.yaml lacks {line}" for line in (f"gateway_timeout: {600 + turn}", f"cached_agents: {value}")
            if line not in text]  # fmt: skip


async def _judge(stock: Stock, home: Path, number: int) -> list[str]:
    """Ask both programs once more and check the requests to their models."""
    faults = []
    for who in ("stock", "ours"):
        if who == "ours":
            await ask_ours(home, f"s{number}", f"last ours {number}")
        else:
            await stock.step(f"s{number}@> last stock {number}")
        said = _words(stock.model.requests[-1])
        wanted = _wanted(number, who)
        if said != wanted:
            faults.append(f"s{number} asked by {who}: {said} instead of {wanted}")
    return faults


def _wanted(number: int, who: str) -> list[str]:
    half = SESSIONS // 2
    words = [f"begin s{number}"]
    for turn in range(ROUNDS):
        words += [f"ours {turn}.{number}", f"stock {turn}.{number}"]
        words += [f"{NOTE}ours {turn}"] if number == 0 else []
        words += [f"{NOTE}stock {turn}"] if number == 1 else []
        own = "ours" if number < half else "stock"
        words.append(f"{NOTE}{own} at once {turn}.{number % half}")
    return [*words, f"last stock {number}", *([f"last ours {number}"] if who == "ours" else [])]


def _words(request: list[dict[str, Any]]) -> list[str]:
    return [str(message["content"]).splitlines()[0] for message in request if message["role"] == "user"]


def _judge_notes(home: Path) -> list[str]:
    entries = (home / "memories" / "USER.md").read_text(encoding="utf-8").strip().split(PARTED)
    wanted = [f"{NOTE}{who} {turn}" for turn in range(ROUNDS) for who in ("ours", "stock")]
    wanted += [f"{NOTE}{who} at once {turn}.{number}" for turn in range(ROUNDS) for number in range(SESSIONS // 2)
               for who in ("ours", "stock")]  # fmt: skip
    return [] if sorted(entries) == sorted(wanted) else [f"notes: {sorted(set(entries) ^ set(wanted))}"]


def _judge_config(home: Path) -> list[str]:
    text = (home / "config.yaml").read_text(encoding="utf-8")
    last = ROUNDS - 1
    return [f"config.yaml lacks {line}" for line in (f"review_every: {20 + last}", f"max_turns: {40 + last}")
            if line not in text]  # fmt: skip
