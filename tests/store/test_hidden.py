"""Hidden messages: an earlier file hides the same from the same readers, whatever happens while it is converted."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.db.engine import Tx, current_version, migrate
from hermes.scope import OWNER
from hermes.store.health import lend_tables, open_unchanged
from hermes.store.schema import MESSAGES, MIGRATIONS, SESSIONS, live_rows, read_shape
from hermes.store.store import Store
from hermes.types import Draft

ONE_TABLE = 16
"""The version since which one table holds every mark."""
PLAIN, HIDDEN, RESTORED, TAKEN_BACK, SECRET, FORGOTTEN, COPIED, OPEN = range(1, 9)
ROWS = [(n, "open" if n == OPEN else "s", "user", f"parrot {n}", float(n), n != RESTORED) for n in range(1, OPEN + 1)]
KILLED_MIGRATION = """
import asyncio, os, signal, sys
from pathlib import Path
from hermes.clock import SystemClock
from hermes.store import store

migrate = store.migrate

def migrate_until_killed(tx, migrations, now):
    tx.set_trace_callback(lambda sql: os.kill(os.getpid(), signal.SIGKILL) if sql == sys.argv[2] else None)
    migrate(tx, migrations, now)

store.migrate = migrate_until_killed
asyncio.run(store.Store.open(Path(sys.argv[1]), clock=SystemClock(), lock_timeout=5.0))
"""


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A file of the version before, with a message for each kind of mark."""
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as db:
        db.execute(SESSIONS)
        db.execute(MESSAGES)
        migrate(db, MIGRATIONS[: ONE_TABLE - 1], now=0.0)
        for session in ("s", "open"):
            db.execute("INSERT INTO sessions (id, source, started_at) VALUES (?, 'cli', 1.0)", (session,))
        columns = "id, session_id, role, content, timestamp, active"
        db.executemany(f"INSERT INTO messages ({columns}) VALUES (?, ?, ?, ?, ?, ?)", ROWS)
        marks = [(HIDDEN, 0, "double"), (RESTORED, 1, "lost"), (TAKEN_BACK, 0, "taken back")]
        db.executemany("INSERT INTO hermes_mended VALUES (?, ?, ?, 5.0)", marks)
        ranges = [("s", SECRET - 1, FORGOTTEN), ("s", COPIED, COPIED), ("open", OPEN - 1, None)]
        db.executemany("INSERT INTO hermes_incognito VALUES (?, ?, ?)", ranges)
        db.executemany("INSERT INTO hermes_memory_told VALUES (?, ?)", [(COPIED, ""), (TAKEN_BACK, ""), (PLAIN, "rec")])
    return tmp_path / "state.db"


async def open_store(path: Path) -> Store:
    return await Store.open(path, clock=SystemClock(), lock_timeout=5.0)


async def check_readers(path: Path) -> None:
    """Check who sees which message of the earlier file."""
    async with await open_store(path) as store:
        await store.append("open", Draft("user", "parrot in the open range"))
        await store.index()

        def look(tx: Tx) -> dict[str, list[int]]:
            everything = [message for key in range(1, OPEN + 2) if (message := store.messages.get(tx, key)) is not None]
            return {
                "view": [message.id for message in store.compressions.view(tx, "s").messages],
                "undone": [message.id for message in store.messages.undone(tx, "s")],
                "memory": [message.id for message in store.incognito.remembered(tx, everything)],
                "unsynced": [message.id for message in store.unsynced.messages(tx, "rec", "s")],
                "search": sorted(
                    hit.message.id for hit in store.search.related(tx, "parrot", OWNER, limit=50, roles=("user",))
                ),
            }

        seen = await store.read(look)
        assert await store.read(lambda tx: store.incognito.is_on(tx, "open"))
        assert not await store.read(lambda tx: store.incognito.is_on(tx, "s"))
    known = [PLAIN, RESTORED, COPIED]
    assert seen == {
        "view": [PLAIN, RESTORED, SECRET, FORGOTTEN, COPIED],
        "undone": [TAKEN_BACK],
        "memory": [PLAIN, HIDDEN, RESTORED, COPIED],  # a repair hides from people only what stands there twice
        "unsynced": [RESTORED],
        "search": known,
    }


@pytest.mark.contract("4.11", "10.27")
async def test_an_earlier_file_hides_the_same_messages(earlier: Path) -> None:
    await check_readers(earlier)


@pytest.mark.processes
@pytest.mark.contract("4.11", "P2")
@pytest.mark.parametrize("last", ["DROP TABLE hermes_incognito", "DELETE FROM hermes_memory_told WHERE provider = ''"])
async def test_a_migration_of_marks_that_is_killed_loses_none(earlier: Path, last: str) -> None:
    command = [sys.executable, "-c", KILLED_MIGRATION, str(earlier), last]
    done = await asyncio.to_thread(subprocess.run, command, check=False)
    assert done.returncode == -signal.SIGKILL
    with closing(sqlite3.connect(earlier)) as db:
        db.row_factory = sqlite3.Row
        assert current_version(db) == ONE_TABLE - 1
    await check_readers(earlier)


@pytest.mark.contract("3.12")
def test_a_reader_that_changes_nothing_sees_the_marks_of_an_earlier_file(earlier: Path) -> None:
    before = earlier.read_bytes()
    with open_unchanged(earlier, lock_timeout=5.0) as tx:
        lend_tables(tx)
        live = tx.execute(f"SELECT t.id FROM messages t WHERE {live_rows(read_shape(tx)[1])} ORDER BY t.id")
        assert [row["id"] for row in live] == [PLAIN, RESTORED, SECRET, FORGOTTEN, COPIED, OPEN]
    assert earlier.read_bytes() == before
