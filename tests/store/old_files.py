"""Files as older versions left them: the early schema (6) and the current one (22), with everything odd that occurs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

SESSION_6 = """
    id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, model_config TEXT, system_prompt TEXT,
    parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0,
    tool_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0,
    cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER DEFAULT 0, reasoning_tokens INTEGER DEFAULT 0,
    billing_provider TEXT, billing_base_url TEXT, billing_mode TEXT, estimated_cost_usd REAL, actual_cost_usd REAL,
    cost_status TEXT, cost_source TEXT, pricing_version TEXT, title TEXT"""
SESSION_22 = """,
    session_key TEXT, chat_id TEXT, chat_type TEXT, thread_id TEXT, display_name TEXT, origin_json TEXT,
    expiry_finalized INTEGER DEFAULT 0, cwd TEXT, git_branch TEXT, git_repo_root TEXT, api_call_count INTEGER DEFAULT 0,
    handoff_state TEXT, handoff_platform TEXT, handoff_error TEXT, compression_failure_cooldown_until REAL,
    compression_failure_error TEXT, compression_fallback_streak INTEGER NOT NULL DEFAULT 0, profile_name TEXT,
    rewind_count INTEGER NOT NULL DEFAULT 0, archived INTEGER NOT NULL DEFAULT 0"""
SESSION_KEY = ", FOREIGN KEY (parent_session_id) REFERENCES sessions(id)"
MESSAGE_6 = """
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL,
    content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, token_count INTEGER,
    finish_reason TEXT, reasoning TEXT, reasoning_details TEXT, codex_reasoning_items TEXT"""
MESSAGE_22 = """,
    effect_disposition TEXT, reasoning_content TEXT, codex_message_items TEXT, platform_message_id TEXT,
    observed INTEGER DEFAULT 0, active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0,
    api_content TEXT"""
SIDE_22 = (
    "CREATE TABLE session_model_usage (session_id TEXT NOT NULL REFERENCES sessions(id), model TEXT NOT NULL, "
    "input_tokens INTEGER DEFAULT 0, PRIMARY KEY (session_id, model))",
    "CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT)",
    "CREATE TABLE gateway_routing (scope TEXT NOT NULL, session_key TEXT NOT NULL, entry_json TEXT NOT NULL, "
    "updated_at REAL NOT NULL, PRIMARY KEY (scope, session_key))",
    "CREATE TABLE compression_locks (session_id TEXT PRIMARY KEY, holder TEXT NOT NULL, acquired_at REAL NOT NULL, "
    "expires_at REAL NOT NULL)",
    "CREATE TABLE async_delegations (delegation_id TEXT PRIMARY KEY, origin_session TEXT, state TEXT)",
)

PARENT, CHILD, GRANDCHILD = "20260310_090000_aaaaaa", "20260310_110000_bbbbbb", "20260310_130000_cccccc"
BRANCH, SUBAGENT = "20260310_093000_dddddd", "20260310_093500_eeeeee"
ORPHAN = "20260310_110001_0f0f0f"
COMPACTED, REWOUND = "20260601_080000_11223344", "20260601_090000_55667788"
CLIENT = "kunde 7: Straße «ü» 会话"
ODD = "20260601_100000_99aabbcc"
KEY, OTHER_KEY = "agent:main:telegram:dm:8439114563", "agent:main:discord:group:77:3"

CALLS = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}]


@dataclass(frozen=True)
class OldFile:
    """A file that was built, and the home it lies in."""

    path: Path
    schema: int

    @property
    def home(self) -> Path:
        return self.path.parent

    def run(self, *statements: str) -> None:
        """Apply the change that another program makes to the file."""
        with closing(sqlite3.connect(self.path)) as db, db:
            for statement in statements:
                db.execute(statement)

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Return what another program reads from the file."""
        with closing(sqlite3.connect(self.path)) as db:
            return db.execute(sql, values).fetchall()


def early_file(home: Path) -> OldFile:
    """Schema 6: full text by triggers, bindings in sessions/sessions.json, compression by rotation only."""
    with _new_file(home) as db:
        db.execute(f"CREATE TABLE sessions ({SESSION_6}{SESSION_KEY})")
        db.execute(f"CREATE TABLE messages ({MESSAGE_6})")
        db.execute("CREATE INDEX idx_messages_session ON messages (session_id, timestamp)")
        _full_text(db, "messages_fts", "")
        db.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
        db.execute("INSERT INTO schema_version VALUES (6)")
        _fill_conversations(db)
        db.commit()
    _write_routes_file(home, {KEY: GRANDCHILD, OTHER_KEY: CLIENT, "agent:main:telegram:dm:1": "no_such_session"})
    return OldFile(home / "state.db", 6)


def current_file(home: Path) -> OldFile:
    """Schema 22: both full-text tables, bindings in a table, compression in place, rewound rows."""
    with _new_file(home) as db:
        db.execute(f"CREATE TABLE sessions ({SESSION_6}{SESSION_22}{SESSION_KEY})")
        db.execute(f"CREATE TABLE messages ({MESSAGE_6}{MESSAGE_22})")
        db.execute("CREATE UNIQUE INDEX idx_sessions_title ON sessions (title) WHERE title IS NOT NULL")
        _full_text(db, "messages_fts", "")
        _full_text(db, "messages_fts_trigram", ", tokenize='trigram'")
        for statement in SIDE_22:
            db.execute(statement)
        db.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
        db.execute("INSERT INTO schema_version VALUES (22)")
        _fill_conversations(db)
        _fill_in_place(db)
        _fill_side_tables(db)
        db.commit()
    _write_routes_file(home, {"agent:main:telegram:dm:stale": PARENT})
    return OldFile(home / "state.db", 22)


def strange_file(home: Path) -> OldFile:
    """Create tables without some columns we need, and with unknown NOT NULL columns."""
    with _new_file(home) as db:
        db.execute(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, started_at REAL NOT NULL, "
            "mood TEXT NOT NULL, weight FLOAT NOT NULL, model TEXT NOT NULL DEFAULT 'none', user_id TEXT NOT NULL)"
        )
        db.execute(
            "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, "
            "role TEXT NOT NULL, content TEXT, timestamp REAL NOT NULL, colour TEXT NOT NULL, shard INTEGER NOT NULL, "
            "tool_calls TEXT NOT NULL DEFAULT '')"
        )
        db.execute("INSERT INTO sessions VALUES (?, 'cli', 1000.0, 'calm', 1.5, 'm', 'u')", (ODD,))
        db.execute(
            "INSERT INTO messages (session_id, role, content, timestamp, colour, shard) "
            "VALUES (?, 'user', 'hello from a strange file', 1001.0, 'red', 3)",
            (ODD,),
        )
        db.commit()
    return OldFile(home / "state.db", 0)


Builder: TypeAlias = Callable[[Path], OldFile]
BUILDERS: tuple[Builder, ...] = (early_file, current_file, strange_file)


def dump(path: Path, tables: Iterable[str] | None = None) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table with rowids and storage classes, and the schema's own SQL."""
    with closing(sqlite3.connect(path)) as db:
        schema = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()
        names = [name for kind, name, _, sql in schema if kind == "table"]
        found: dict[str, list[tuple[object, ...]]] = {}
        for table in names if tables is None else [name for name in names if name in set(tables)]:
            found[table] = _dump_table(db, table)
            found[f"schema of {table}"] = [
                row for row in schema if row[2] == table and not str(row[1]).startswith("hermes_")
            ]
    return found


def tables_of(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]


def _dump_table(db: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    columns = [row[1] for row in db.execute(f"PRAGMA table_info('{table}')")]
    fields = ", ".join(f'"{name}", typeof("{name}")' for name in columns)
    try:
        return db.execute(f"SELECT rowid, {fields} FROM '{table}' ORDER BY rowid").fetchall()
    except sqlite3.OperationalError:  # WITHOUT ROWID, as FTS5 makes for its own tables
        return db.execute(f"SELECT {fields} FROM '{table}' ORDER BY 1, 3").fetchall()


def _new_file(home: Path) -> closing[sqlite3.Connection]:
    home.mkdir(parents=True, exist_ok=True)
    return closing(sqlite3.connect(home / "state.db"))


def _full_text(db: sqlite3.Connection, name: str, options: str) -> None:
    db.execute(f"CREATE VIRTUAL TABLE {name} USING fts5(content, content='messages', content_rowid='id'{options})")
    insert = f"INSERT INTO {name}(rowid, content) VALUES (new.id, new.content);"
    remove = f"INSERT INTO {name}({name}, rowid, content) VALUES ('delete', old.id, old.content);"
    db.execute(f"CREATE TRIGGER {name}_insert AFTER INSERT ON messages BEGIN {insert} END")
    db.execute(f"CREATE TRIGGER {name}_delete AFTER DELETE ON messages BEGIN {remove} END")
    db.execute(f"CREATE TRIGGER {name}_update AFTER UPDATE ON messages BEGIN {remove} {insert} END")


def _session(db: sqlite3.Connection, key: str, source: str, started: float, **more: object) -> None:
    values = {"id": key, "source": source, "started_at": started, **more}
    db.execute(
        f"INSERT INTO sessions ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", [*values.values()]
    )


def _say(db: sqlite3.Connection, session: str, at: float, role: str, content: object, **more: object) -> None:
    values = {"session_id": session, "role": role, "content": content, "timestamp": at, **more}
    db.execute(
        f"INSERT INTO messages ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", [*values.values()]
    )


def _fill_conversations(db: sqlite3.Connection) -> None:
    """A conversation that was rotated twice, what hangs off it, a client's own id and damaged values."""
    _session(
        db, PARENT, "telegram", 100.0, ended_at=200.0, end_reason="compression", title="garden", message_count=2,
        user_id="8439114563", system_prompt="Be kind.", model="m1",
    )  # fmt: skip
    _session(db, BRANCH, "telegram", 150.0, parent_session_id=PARENT, ended_at=160.0, end_reason="session_switch")
    _session(db, SUBAGENT, "cli", 155.0, parent_session_id=PARENT, ended_at=158.0, end_reason="user_exit")
    _session(db, ORPHAN, "telegram", 200.0, parent_session_id=PARENT, end_reason="orphaned_compression", ended_at=999.0)
    _session(db, CHILD, "telegram", 200.0, parent_session_id=PARENT, ended_at=300.0, end_reason="compression")
    _session(db, GRANDCHILD, "telegram", 300.5, parent_session_id=CHILD, message_count=1)
    _session(db, CLIENT, "api_server", 400.0)
    _session(db, ODD, "cli", 500.0, message_count=None)
    _say(db, PARENT, 101.0, "user", "where do the tulips grow?")
    _say(db, PARENT, 102.0, "assistant", "beside the wall", token_count=4, finish_reason="stop", reasoning="walls")
    _say(db, BRANCH, 151.0, "user", "branch question")
    _say(db, CHILD, 201.0, "user", "[summary] tulips beside the wall")
    _say(db, ORPHAN, 201.5, "user", "[summary] left behind")
    _say(db, GRANDCHILD, 301.0, "user", "and the roses?")
    _say(db, CLIENT, 401.0, "user", "grüße aus Zürich 你好世界")
    _say(db, ODD, 501.0, "assistant", None, tool_calls=json.dumps(CALLS), finish_reason="tool_calls")
    _say(db, ODD, 502.0, "tool", b"\xff\xfebytes of a tool", tool_call_id="c1", tool_name="look")
    _say(db, ODD, 503.0, "assistant", "broken calls", tool_calls='[{"id": "c2", "func')
    _say(db, ODD, 504.0, "assistant", "odd calls", tool_calls='[5, {"function": "x", "call_id": 7}, {"name": "y"}]')


def _fill_in_place(db: sqlite3.Connection) -> None:
    _session(db, COMPACTED, "cli", 600.0, message_count=3, title="in place")
    for number in range(3):
        _say(db, COMPACTED, 601.0 + number, "user", f"old talk {number} of parsnips", active=0, compacted=1)
    _say(db, COMPACTED, 604.0, "user", "[summary] parsnips")
    _say(db, COMPACTED, 605.0, "user", "what now?", platform_message_id="p-9", observed=1)
    _session(db, REWOUND, "cli", 700.0, rewind_count=1)
    _say(db, REWOUND, 701.0, "user", "rewound secret", active=0)
    _say(db, REWOUND, 702.0, "user", "asked again")


def _fill_side_tables(db: sqlite3.Connection) -> None:
    entry = {"session_key": KEY, "created_at": "2026-03-10T09:00:00", "origin": {"platform": "telegram"}}
    routes = [
        ("old", KEY, json.dumps({**entry, "session_id": PARENT}), 1.0),
        ("main", KEY, json.dumps({**entry, "session_id": GRANDCHILD}), 2.0),
        ("main", OTHER_KEY, json.dumps({"session_key": OTHER_KEY, "session_id": CLIENT}), 3.0),
        ("main", "broken", "{not json", 4.0),
        ("main", "listed", "[1, 2]", 5.0),
        ("main", "gone", json.dumps({"session_id": "no_such_session"}), 6.0),
    ]
    db.executemany("INSERT INTO gateway_routing VALUES (?, ?, ?, ?)", routes)
    db.execute("INSERT INTO session_model_usage VALUES (?, 'm1', 12)", (PARENT,))
    db.execute("INSERT INTO compression_locks VALUES (?, 'pid 1', 1.0, 2.0)", (GRANDCHILD,))
    db.execute("INSERT INTO async_delegations VALUES ('d1', ?, 'done')", (PARENT,))
    db.execute("INSERT INTO state_meta VALUES ('k', 'v')")


def _write_routes_file(home: Path, bindings: dict[str, str]) -> None:
    folder = home / "sessions"
    folder.mkdir(exist_ok=True)
    entries = {key: {"session_key": key, "session_id": bound, "updated_at": "x"} for key, bound in bindings.items()}
    (folder / "sessions.json").write_text(json.dumps({**entries, "odd": 5, "empty": {}}), encoding="utf-8")
