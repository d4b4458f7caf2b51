"""`python -m scripts.stock_homes make FOLDER [NAME …]`, `… check FOLDER [NAME …]`, `… together FOLDER`, `… list`."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path

from scripts.stock_homes.check import run, table
from scripts.stock_homes.drive import make_home
from scripts.stock_homes.install import install
from scripts.stock_homes.kills import where_killed
from scripts.stock_homes.recipes import Recipe, recipes
from scripts.stock_homes.together import live_together

KEPT = (
    "state.db",
    "state.db-wal",
    "state.db-shm",
    "config.yaml",
    "said.json",
    "stock.out",
    "stock.killed",
    "logs",
    "sessions",
    "memories",
)
"""Files that an audit reads; the rest of a stock home (skills, caches) is a thousand times larger."""


def main() -> int:
    """Run a command: make, check, compare or list homes."""
    parser = argparse.ArgumentParser(prog="python -m scripts.stock_homes", description=__doc__)
    parser.add_argument("command", choices=("make", "check", "together", "list"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.command == "list" or given.folder is None:
        sys.stdout.write("".join(f"{recipe.name}\n" for recipe in recipes()))
        return 0
    folder = given.folder.resolve()
    python = install(folder / "environment")
    wanted = [recipe for recipe in recipes() if not given.names or recipe.name in given.names]
    if given.command == "check":
        well = run(python, folder / "homes", wanted, folder / "work", folder / "rows")
        made = table(folder / "rows")
        (folder / "table.md").write_text(made, encoding="utf-8")
        sys.stdout.write(made)
        return 0 if well else 1
    if given.command == "together":
        shutil.rmtree(folder / "together", ignore_errors=True)
        faults = asyncio.run(live_together(python, folder / "together"))
        sys.stdout.write("".join(f"{fault}\n" for fault in faults) or "nothing is lost, both go on\n")
        return 1 if faults else 0
    _make(python, folder, wanted)
    return 0


def _make(python: Path, folder: Path, wanted: list[Recipe]) -> None:
    for recipe in wanted:
        home = folder / "homes" / recipe.name
        if home.exists():
            continue
        began = time.monotonic()
        working = home.with_name(f".{recipe.name}")
        shutil.rmtree(working, ignore_errors=True)
        said = asyncio.run(make_home(python, working, recipe))
        lines = json.dumps([asdict(one) for one in said], indent=1)
        (working / "said.json").write_text(lines, encoding="utf-8")
        home.mkdir(parents=True)
        for name in KEPT:
            if (working / name).exists():
                (working / name).replace(home / name)
        shutil.rmtree(working)
        answered = sum(one.answered for one in said)
        took, killed = time.monotonic() - began, where_killed(home, recipe)
        sys.stdout.write(f"{recipe.name}: {answered} of {len(said)} answered, killed {killed}, {took:.0f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
