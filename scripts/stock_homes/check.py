"""What becomes of a home: found, explained, repaired, not changed by a second repair, continued by both programs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes.clock import SystemClock
from hermes.db.engine import Tx
from hermes.store.store import Store
from scripts.stock_homes.drive import Stock, open_stock
from scripts.stock_homes.recipes import Recipe

LOCK = 30.0
HELD = ("explained", "repaired", "second repair", "continued", "stock goes on")


@dataclass(frozen=True)
class Row:
    """One home of the table. `wrong` is empty where everything is as it should be."""

    name: str
    found: str
    wrong: tuple[str, ...]


async def check(python: Path, home: Path, recipe: Recipe, work: Path) -> Row:
    """Repair a copy of a home and let both programs go on in it."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(home, work)
    (work / "config.yaml").unlink()
    _, first = _doctor(work)
    damage = [finding for finding in first["findings"] if finding["check"] == "sessions" and finding["level"] != "ok"]
    code, _ = _doctor(work, "--repair", "--yes")
    mended = _bytes(work)
    again, _ = _doctor(work, "--repair", "--yes")
    faults = {
        "explained": all(finding["detail"] and (finding["remedy"] or finding["fix"]) for finding in damage),
        "repaired": code == 0,
        "second repair": again == 0 and _bytes(work) == mended,
        "continued": not (faulty := await find_faults(work)),
        "stock goes on": await _stock_goes_on(python, work, recipe),
    }
    assert tuple(faults) == HELD
    sys.stderr.write("".join(f"{recipe.name}: {fault}\n" for fault in faulty))
    codes = ", ".join(sorted({str(finding["code"]) for finding in damage})) or "-"
    return Row(recipe.name, codes, tuple(name for name, holds in faults.items() if not holds))


async def find_faults(home: Path) -> list[str]:
    """What a conversation lacks or has twice in what the next turn would see, for each key and each client's id."""
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=LOCK) as store:
        return await store.read(lambda tx: _judge_all(store, tx))


def _judge_all(store: Store, tx: Tx) -> list[str]:
    names = {**store.routes.all(tx), **{root: root for root in _unrouted(tx)}}
    return [fault for name, start in sorted(names.items()) for fault in _judge(store, tx, name, start)]


def _judge(store: Store, tx: Tx, name: str, start: str) -> list[str]:
    live = store.sessions.live_id(tx, start)
    lineage = store.sessions.lineage(tx, live)
    view = store.compressions.view(tx, live)
    seen = _words(message.content for message in view.messages if message.role == "user")
    said = list(dict.fromkeys(word for one in lineage for word in _words(_said(tx, one))))
    shown = {word for one in lineage for word in _words(_history(store, tx, one))}
    faults = [f"{name}: {word!r} is nowhere" for word in said if word not in shown]
    if len(set(seen)) != len(seen):
        faults.append(f"{name}: {live} shows something twice: {seen}")
    if seen != [word for word in said if word in seen]:
        faults.append(f"{name}: {live} shows its words in another order: {seen}")
    if said and said[-1] not in seen:
        faults.append(f"{name}: {live} lacks the last words")
    return faults


def _unrouted(tx: Tx) -> list[str]:
    rows = tx.execute("SELECT id FROM sessions WHERE source = 'api_server' AND parent_session_id IS NULL")
    return [str(row["id"]) for row in rows]


def _said(tx: Tx, session_id: str) -> list[str | None]:
    rows = tx.execute("SELECT content FROM messages WHERE session_id = ? AND role = 'user' ORDER BY id", (session_id,))
    return [row["content"] for row in rows]


def _history(store: Store, tx: Tx, session_id: str) -> list[str | None]:
    return [message.content for message in store.messages.history(tx, session_id) if message.role == "user"]


def _words(texts: Iterable[str | None]) -> list[str]:
    return [text.strip()[:40] for text in texts if text and not text.startswith("[")]


async def _stock_goes_on(python: Path, work: Path, recipe: Recipe) -> bool:
    """Whether the other program answers in its own home after the repair."""
    over_api = any("@" in step.split(">")[0] for step in recipe.steps)
    stock: Stock
    async with open_stock(python, work, Recipe(recipe.name, (), recipe.in_place, window=recipe.window)) as stock:
        await stock.start()
        await stock.step("api-chat-1@> and now" if over_api else "ann> and now")
    return stock.said[-1].answered


def _doctor(home: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "hermes", "doctor", "--json", *arguments]
    env = {**os.environ, "HERMES_HOME": str(home)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def _bytes(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.glob("state.db*") if not path.name.endswith("-shm")}


def table(rows: Iterable[Row]) -> str:
    """The table as Markdown, a cell for each thing that must hold."""
    head = ("home", "found", *HELD)
    cells = [(row.name, row.found, *("no" if name in row.wrong else "yes" for name in HELD)) for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *cells))


def run(python: Path, homes: Path, wanted: Iterable[Recipe], work: Path) -> list[Row]:
    """Check the homes that are there, one after another."""
    rows = []
    for recipe in wanted:
        if (homes / recipe.name).exists():
            rows.append(asyncio.run(check(python, homes / recipe.name, recipe, work)))
            sys.stdout.write(f"{rows[-1].name}: {rows[-1].found}: {', '.join(rows[-1].wrong) or 'all'}\n")
            sys.stdout.flush()
    return rows
