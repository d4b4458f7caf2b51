"""Checks a home: found, explained, repaired, unchanged by a second repair, continued by both programs."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scripts.stock_homes.drive import Said, Stock, open_stock
from scripts.stock_homes.judge import words
from scripts.stock_homes.kills import IN_COMPRESSION, NEVER, where_killed
from scripts.stock_homes.ours import find_doors, run_doctor
from scripts.stock_homes.recipes import Recipe
from scripts.stock_homes.turn import find_request, take_turn, what_is_told

FIRST_LATER_COUNT = 1_000
"""Number of the first reply after the repair."""
HELD = ("explained", "repaired", "second repair", "our turn", "stock goes on", "our turn again")
GOING_ON = ("stock on", "stock further grow", "stock again", "stock last")


@dataclass
class Row:
    """A row of the table: the findings of a home, and the errors under each heading ("" without errors)."""

    name: str
    killed: str
    found: str = "-"
    wrong: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in HELD})

    @property
    def faults(self) -> list[str]:
        return [f"{name}: {fault}" for name, faults in self.wrong.items() for fault in faults]


async def check(python: Path, home: Path, recipe: Recipe, work: Path) -> Row:
    """Repair a copy of a home and let both programs continue it."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(home, work)
    _move_in(work)
    row = Row(recipe.name, where_killed(home, recipe))
    said = [Said(**entry) for entry in json.loads((home / "said.json").read_text(encoding="utf-8"))]
    plain = Recipe(recipe.name, (), recipe.in_place, window=recipe.window)
    async with open_stock(python, work, plain, first=FIRST_LATER_COUNT) as stock:
        told = await _repair(work, row)
        row.wrong["our turn"], said = await take_turn(stock.model, work, said, told, "ours")
        row.wrong["stock goes on"], said = await _stock_goes_on(stock, work, said)
        code, report = await run_doctor(work, "--repair", "--yes")
        if code:
            row.wrong["our turn again"].append("what stock left is not mended")
        told = [*told, *what_is_told(report)]
        faults, _ = await take_turn(stock.model, work, said, told, "ours again")
        row.wrong["our turn again"] += faults
    return row


def _move_in(work: Path) -> None:
    """Rewrite the bindings from the original folder to this one, as if the home had been made here."""
    with closing(sqlite3.connect(work / "state.db")) as db, db:
        db.execute("UPDATE gateway_routing SET scope = ?", (str(work / "sessions"),))


async def _repair(work: Path, row: Row) -> list[dict[str, Any]]:
    """Audit, repair, and repair again; return the remaining findings."""
    _, first = await run_doctor(work)
    damage = [finding for finding in first["findings"] if finding["check"] == "sessions" and finding["level"] != "ok"]
    row.found = ", ".join(sorted({str(finding["code"]) for finding in damage})) or "-"
    for finding in damage:
        if not finding["detail"] or not (finding["remedy"] or finding["fix"]):
            row.wrong["explained"].append(str(finding["code"]))
    before = _bytes(work)
    code, report = await run_doctor(work, "--repair", "--yes")
    if code:
        row.wrong["repaired"].append("damage is left")
    if "repair" not in report and _bytes(work) != before:
        row.wrong["repaired"].append("there was nothing to repair, and the file changed")
    mended = _bytes(work)
    code, report = await run_doctor(work, "--repair", "--yes")
    if code or "repair" in report or _bytes(work) != mended:
        row.wrong["second repair"].append("it changed something")
    return what_is_told(report)


async def _stock_goes_on(stock: Stock, work: Path, said: Sequence[Said]) -> tuple[list[str], list[Said]]:
    """Check that the other program continues after ours: it sees our messages, compresses, and answers everything."""
    chat = said[-1].chat
    doors = await find_doors(work, [chat])
    room, _, nick = chat.rpartition(":")
    speaker = f"{doors[chat][-1]}@" if _is_client(chat) else f"{nick}{'#' if room else ''}"
    await stock.start()
    faults = []
    for text in GOING_ON:
        await stock.step(f"{speaker}> {text}")
        if not stock.said[-1].answered:
            faults.append(f"{text!r} was not answered")
    await stock.stop()
    shown = [word for message in find_request(stock.model, GOING_ON[0]) for word in words(message.get("content"))]
    if f"ours {chat}" not in shown:
        faults.append(f"what we were told is not seen: {shown}")
    on = [Said(chat, one.text, one.answered, said[-1].number + 1 + one.number) for one in stock.said]
    return faults, [*said, *on]


def _is_client(chat: str) -> bool:
    return chat.startswith("api-")


def _bytes(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.glob("state.db*") if not path.name.endswith("-shm")}


def table(folder: Path) -> str:
    """Return the rows in a folder as a Markdown table with a cell per requirement, and how many hold."""
    rows = [Row(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]
    head = ("home", "killed", "found", *HELD)
    cells = [(row.name, row.killed, row.found, *("no" if row.wrong[name] else "yes" for name in HELD)) for row in rows]
    lines = "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *cells))
    held, damaged = sum(not row.faults for row in rows), sum(row.found != "-" for row in rows)
    killed = sum(row.killed == IN_COMPRESSION for row in rows)
    never = ", ".join(row.name for row in rows if row.killed == NEVER) or "none"
    return (
        f"{lines}\n{held} of {len(rows)} homes hold in every cell. Something was found in {damaged}. {killed} were "
        f"killed at a drawn moment in a compression; those whose kill never came: {never}.\n"
    )


def run(python: Path, homes: Path, wanted: Iterable[Recipe], work: Path, rows: Path) -> bool:
    """Check all homes one after another and store a row for each; return True if all are correct."""
    rows.mkdir(parents=True, exist_ok=True)
    well = True
    for recipe in wanted:
        if (homes / recipe.name).exists():
            row = asyncio.run(check(python, homes / recipe.name, recipe, work / recipe.name))
            (rows / f"{row.name}.json").write_text(json.dumps(asdict(row), indent=1), encoding="utf-8")
            sys.stdout.write(f"{row.name}: {row.killed}: {row.found}: {'; '.join(row.faults) or 'all holds'}\n")
            sys.stdout.flush()
            well = well and not row.faults and row.killed != NEVER
    return well
