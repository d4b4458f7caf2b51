"""Homes that a stock 0.19 made (`scripts/stock_homes`), kept small: sessions, messages, routes, log lines."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from scripts.stock_homes.drive import Said
from tests.store import old_files as old

FOLDER = Path(__file__).parent.parent / "fixtures" / "stock"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def read_said(name: str) -> list[Said]:
    """Return the people's messages in a home."""
    kept = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return [Said(**entry) for entry in kept["said"]]


def put_home(name: str, home: Path) -> None:
    """Create the home as its stock Hermes left it."""
    kept = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    home.mkdir(parents=True)
    with closing(sqlite3.connect(home / "state.db")) as db, db:
        db.execute(f"CREATE TABLE sessions ({old.SESSION_6}{old.SESSION_22}{old.SESSION_KEY})")
        db.execute(f"CREATE TABLE messages ({old.MESSAGE_6}{old.MESSAGE_22})")
        db.execute("CREATE INDEX idx_messages_session ON messages (session_id, timestamp)")
        for statement in old.SIDE_22:
            db.execute(statement)
        db.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
        db.execute("INSERT INTO schema_version VALUES (22)")
        for table in ("sessions", "messages"):
            for row in kept[table]:
                _insert(db, table, row)
        for route in kept["routes"]:
            entry = {"scope": "main", "session_key": route["session_key"], "entry_json": json.dumps(route)}
            _insert(db, "gateway_routing", {**entry, "updated_at": 1.0})
    (home / "logs").mkdir()
    (home / "logs" / "agent.log").write_text("".join(f"{line}\n" for line in kept["log"]), encoding="utf-8")


def _insert(db: sqlite3.Connection, table: str, values: Mapping[str, object]) -> None:
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", [*values.values()])
