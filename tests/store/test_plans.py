"""Queries of every turn use an index, and listing sessions reads each session once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hermes.db.engine import Tx
from hermes.scope import OWNER
from hermes.store.store import Store
from hermes.types import Compression, Draft
from tests.store import old_files as old
from tests.store.still_clock import StillClock

COUNT = 1_000
PER_SESSION = 200
"""Allowed virtual-machine steps of a list per session: three times what it takes."""
BY_INDEX = 30_000
"""Allowed steps of any other query, however many sessions exist."""


def scans(tx: Tx, run: Callable[[Tx], object]) -> list[str]:
    """Return the plan steps of queries made by `run` that scan a shared table."""
    statements: list[str] = []
    tx.set_trace_callback(statements.append)
    run(tx)
    tx.set_trace_callback(None)
    plans = [step for sql in statements if not sql.startswith("--") for step in _plan(tx, sql)]
    assert plans
    shared = ("SCAN t", "SCAN messages", "SCAN sessions", "SCAN m", "SCAN s")
    # FTS5 reads its own settings, a row or two, when a connection uses it for the first time.
    return [step for step in plans if step.startswith(shared) and step != "SCAN main.hermes_search_config"]


def _plan(tx: Tx, sql: str) -> list[str]:
    if not sql.lstrip().upper().startswith(("SELECT", "INSERT", "UPDATE", "DELETE")):
        return []
    return [row[3] for row in tx.execute(f"EXPLAIN QUERY PLAN {sql}")]


@pytest.mark.parametrize("build", old.BUILDERS)
async def test_no_query_of_a_turn_scans_a_table(tmp_path: Path, build: old.Builder) -> None:
    async with await Store.open(build(tmp_path).path, clock=StillClock(1.0), lock_timeout=10) as store:
        (last,) = await store.append(old.ODD, Draft("user", "last", platform_message_id="p"))
        made = Compression(old.ODD, 1, last.id, last.id, (last.id,), "sum", f"{old.ODD}.snapshot", 1.0)
        doors: list[Callable[[Tx], object]] = [
            lambda tx: store.compressions.commit(tx, made),
            lambda tx: store.compressions.view(tx, old.ODD),
            lambda tx: store.compressions.latest(tx, old.ODD),
            lambda tx: store.compressions.snapshot(tx, made.snapshot_id),
            lambda tx: store.messages.append(tx, old.ODD, [Draft("user", "x", platform_message_id="q")], now=1.0),
            lambda tx: list(store.messages.history(tx, old.ODD)),
            lambda tx: store.messages.last_id(tx, old.ODD),
            lambda tx: store.routes.bind(tx, "k", old.ODD, now=1.0),
            lambda tx: store.routes.lookup(tx, "k"),
            lambda tx: store.sessions.live_id(tx, old.PARENT),
            store.search.behind,
            lambda tx: store.search.catch_up(tx, 2),
            lambda tx: store.search.find(tx, "last", OWNER, limit=5),
        ]
        for door in doors:
            assert await store.write(partial(scans, run=door)) == []


def fill(path: Path) -> None:
    """Fill a store with many sessions with long prompts. Every tenth is rotated, and one lineage is long."""
    prompt = "p" * 9_000
    with sqlite3.connect(path) as db:
        for number in range(COUNT):
            rotated = number % 10 == 0
            parent = f"s{number - 10}" if number in range(10, 510, 10) else None
            db.execute(
                "INSERT INTO sessions (id, source, started_at, ended_at, end_reason, system_prompt, parent_session_id) "
                "VALUES (?, 'cli', ?, ?, ?, ?, ?)",
                (f"s{number}", number, number if rotated else None, "compression" if rotated else None, prompt, parent),
            )
            rows = [(f"s{number}", "user", f"message {turn}", number + turn / 10) for turn in range(4)]
            db.executemany("INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)", rows)
    db.close()


def steps(tx: Tx, run: Callable[[Tx], object]) -> int:
    """Return the approximate number of SQLite steps that `run` takes."""
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 100

    tx.set_progress_handler(count, 100)
    run(tx)
    tx.set_progress_handler(None, 0)
    return taken


async def test_many_sessions_are_listed_in_one_pass_and_followed_by_an_index(tmp_path: Path) -> None:
    file = old.current_file(tmp_path)
    fill(file.path)
    async with await Store.open(file.path, clock=StillClock(1.0), lock_timeout=10) as store:
        doors: dict[str, Callable[[Tx], object]] = {
            "recent": lambda tx: store.sessions.recent(tx, limit=20),
            "continuation": lambda tx: store.sessions.continuation(tx, "s0"),
            "live_id": lambda tx: store.sessions.live_id(tx, "s0"),
            "lineage": lambda tx: store.sessions.lineage(tx, "s490"),
            "find": lambda tx: store.sessions.find(tx, f"s{COUNT - 1}"),
        }
        assert await store.read(doors["live_id"]) == "s500"
        listed = await store.read(lambda tx: store.sessions.recent(tx, limit=COUNT))
        hidden = {f"s{number}" for number in range(0, 500, 10)}
        assert hidden.isdisjoint(entry.session.id for entry in listed)
        for name, door in doors.items():
            most = PER_SESSION * COUNT if name == "recent" else BY_INDEX
            assert await store.read(partial(steps, run=door)) < most, name
