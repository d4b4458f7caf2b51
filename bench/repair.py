"""Measures audit and repair of a large store of an older version: 20,000 sessions, of which 200 are damaged."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from bench.table import report, summarise
from hermes.audit.audit import audit_store
from hermes.audit.log import LogAudit
from hermes.audit.repair import repair
from hermes.clock import SystemClock
from hermes.home import Home

SESSIONS, DAMAGED = 20_000, 200
SCHEMA = (
    "CREATE TABLE schema_version (version INTEGER NOT NULL)",
    "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, session_key TEXT, chat_id TEXT, chat_type TEXT, "
    "parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, model_config TEXT)",
    "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, "
    "content TEXT, timestamp REAL NOT NULL, active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0)",
    "CREATE INDEX idx_messages_session ON messages (session_id, timestamp)",
    "CREATE TABLE gateway_routing (scope TEXT, session_key TEXT, entry_json TEXT, updated_at REAL)",
)


def run() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        home = Home(Path(folder))
        with closing(sqlite3.connect(home.state_file)) as db, db:
            _fill(db)
        by_command = shutil.copytree(home.path, home.path / "by-command")
        start = time.perf_counter()
        found = audit_store(home, LogAudit(), lock_timeout=30.0).damage
        looked = time.perf_counter()
        done = asyncio.run(repair(home, clock=SystemClock(), lock_timeout=30.0))
        ended = time.perf_counter()
        assert len(found) == len(done.mended) == DAMAGED, "every damage is found and mended"
        wall, cpu = _measure_command(by_command)
    rows = [
        summarise("look", [looked - start]),
        summarise("back up and mend", [ended - looked]),
        summarise("`hermes doctor --repair --yes`", [wall]),
        summarise("its CPU", [cpu]),
    ]
    report(f"Repair: {SESSIONS:,} sessions with {DAMAGED} damages", rows)


def _measure_command(home: Path) -> tuple[float, float]:
    """Return the seconds of the whole command, and its CPU seconds."""
    command = [sys.executable, "-m", "hermes", "doctor", "--repair", "--yes", "--json"]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    out = subprocess.run(command, env={**os.environ, "HERMES_HOME": str(home)}, stdout=subprocess.PIPE, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert len(json.loads(out.stdout)["repair"]["mended"]) == DAMAGED
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _fill(db: sqlite3.Connection) -> None:
    for statement in SCHEMA:
        db.execute(statement)
    for number in range(SESSIONS):
        key, began = f"agent:main:telegram:dm:{number}", 1.78e9 + number
        whose = (key, str(number), "dm")
        hurt = number % (SESSIONS // DAMAGED) == 0
        end = (began + 50, "compression") if hurt else (None, None)
        _session(db, f"s{number}", whose, None, began, end)
        if hurt:
            _session(db, f"c{number}", whose, f"s{number}", began + 50, (None, None))
            _say(db, f"c{number}", began + 50, "[CONTEXT SUMMARY]: so far")
        for turn in range(5):
            _say(db, f"s{number}", began + turn, f"what about {turn}?")
        entry = json.dumps({"session_key": key, "session_id": f"s{number}"})
        db.execute("INSERT INTO gateway_routing VALUES ('main', ?, ?, 1.0)", (key, entry))


def _session(
    db: sqlite3.Connection,
    name: str,
    whose: tuple[str, str, str],
    parent: str | None,
    began: float,
    end: tuple[float | None, str | None],
) -> None:
    values = (name, "telegram", *whose, parent, began, *end, None)
    db.execute(f"INSERT INTO sessions VALUES ({', '.join('?' * len(values))})", values)


def _say(db: sqlite3.Connection, session: str, at: float, text: str) -> None:
    db.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, ?)", (session, text, at)
    )
