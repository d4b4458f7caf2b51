"""Tables: the two that we share with existing files, and our own beside them.

An existing file may lack columns that we need. It is not altered: such values go to a side table
(`hermes_session_extra`, `hermes_message_extra`) that has every optional column, and reads join the two.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import UTC, datetime

from hermes.db import leases, queue
from hermes.db.engine import Migration, Tx
from hermes.errors import StoreDamagedError
from hermes.store import (
    api_turns,
    corrections,
    hidden,
    inbox,
    injections,
    memory_rows,
    people,
    reviews,
    session_settings,
    usage,
)
from hermes.types import Json

COMPRESSION_FAILURES = """
CREATE TABLE hermes_compression_failures (
    session_id TEXT PRIMARY KEY,
    failures INTEGER NOT NULL,
    not_before REAL NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID
"""

SESSIONS = """
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    user_id TEXT,
    session_key TEXT,
    chat_id TEXT,
    chat_type TEXT,
    thread_id TEXT,
    title TEXT,
    model TEXT,
    system_prompt TEXT,
    parent_session_id TEXT REFERENCES sessions (id),
    started_at REAL NOT NULL,
    ended_at REAL,
    end_reason TEXT,
    message_count INTEGER DEFAULT 0
)
"""

MESSAGES = """
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions (id),
    role TEXT NOT NULL,
    content TEXT,
    tool_call_id TEXT,
    tool_calls TEXT,
    tool_name TEXT,
    timestamp REAL NOT NULL,
    token_count INTEGER,
    finish_reason TEXT,
    reasoning TEXT,
    platform_message_id TEXT,
    active INTEGER NOT NULL DEFAULT 1,
    compacted INTEGER NOT NULL DEFAULT 0
)
"""

SESSION_REQUIRED = ("id", "source", "started_at")
SESSION_OPTIONAL = (
    "user_id",
    "session_key",
    "chat_id",
    "chat_type",
    "thread_id",
    "title",
    "model",
    "system_prompt",
    "parent_session_id",
    "ended_at",
    "end_reason",
    "message_count",
)
SIDE_TABLE_ONLY = frozenset({"system_prompt"})
"""Columns of shared tables that we keep in the side table anyway, since each program needs its own value."""
MESSAGE_REQUIRED = ("id", "session_id", "role", "content", "timestamp")
MESSAGE_FIRST = (
    "tool_call_id",
    "tool_calls",
    "tool_name",
    "token_count",
    "finish_reason",
    "reasoning",
    "platform_message_id",
    "author_id",
    "author_name",
)
"""Columns of the first version of the message side table."""
MESSAGE_OPTIONAL = (*MESSAGE_FIRST, "author_alt", "author_is_owner", "author_is_agent")

MAX_EPOCH_SECONDS = 32503680000.0
"""The year 3000. Greater timestamps are in smaller units than seconds."""

SURROGATE = re.compile("[\ud800-\udfff]")
NUMERIC = ("INT", "REAL", "FLOA", "DOUB", "NUM", "DEC", "BOOL")
LIVE_MARKS = {"active": 1, "compacted": 0}

MIGRATIONS = (
    Migration(
        1,
        (
            leases.SCHEMA,
            *queue.SCHEMA,
            "CREATE TABLE hermes_session_extra "
            f"(session_id TEXT PRIMARY KEY, {', '.join(SESSION_OPTIONAL)}) WITHOUT ROWID",
            "CREATE INDEX hermes_session_extra_by_parent ON hermes_session_extra (parent_session_id)",
            f"CREATE TABLE hermes_message_extra (message_id INTEGER PRIMARY KEY, {', '.join(MESSAGE_FIRST)})",
            """
            CREATE TABLE hermes_compressions (
                session_id TEXT NOT NULL,
                epoch INTEGER NOT NULL,
                horizon_message_id INTEGER NOT NULL,
                upto_message_id INTEGER NOT NULL,
                kept_ids TEXT NOT NULL,
                summary TEXT NOT NULL,
                snapshot_id TEXT NOT NULL UNIQUE,
                created_at REAL NOT NULL,
                PRIMARY KEY (session_id, epoch)
            ) WITHOUT ROWID
            """,
            """
            CREATE TABLE hermes_routes (
                session_key TEXT PRIMARY KEY,
                session_id TEXT NOT NULL,
                updated_at REAL NOT NULL
            ) WITHOUT ROWID
            """,
            "CREATE INDEX hermes_routes_session ON hermes_routes (session_id)",
            "CREATE VIRTUAL TABLE hermes_search USING fts5 "
            "(text, content='', tokenize='porter unicode61 remove_diacritics 2')",
            "CREATE TABLE hermes_search_rows (message_id INTEGER PRIMARY KEY, fingerprint INTEGER NOT NULL)",
            "CREATE TABLE hermes_search_state (indexed_upto INTEGER NOT NULL)",
            "INSERT INTO hermes_search_state VALUES (0)",
            "CREATE INDEX hermes_messages_by_session ON messages (session_id, id)",
            "CREATE INDEX hermes_sessions_by_start ON sessions (started_at)",
        ),
    ),
    Migration(2, (hidden.INCOGNITO_SCHEMA, reviews.REVIEWS_SCHEMA, COMPRESSION_FAILURES, *inbox.SCHEMA)),
    Migration(3, (hidden.MENDED_SCHEMA,)),
    Migration(4, (inbox.MOVED_CHATS,)),
    Migration(5, queue.TRIED_AT),
    Migration(6, (*memory_rows.SCHEMA, session_settings.PROMPTS_SCHEMA)),
    Migration(7, (reviews.DUE,)),
    Migration(
        8,
        (
            people.SCHEMA,
            "ALTER TABLE hermes_message_extra ADD COLUMN author_alt",
            "ALTER TABLE hermes_message_extra ADD COLUMN author_is_owner",
        ),
    ),
    Migration(9, (injections.SCHEMA,)),
    Migration(10, (*memory_rows.SYNCED_SCHEMA, memory_rows.EARLIER, queue.LOST)),
    Migration(11, reviews.NOTE_REMARKS_SCHEMA),
    Migration(
        12,
        (
            session_settings.CHOSEN_MODELS_SCHEMA,
            usage.SCHEMA,
            session_settings.PROJECT_FILES,
            session_settings.AUTO_TITLES_SCHEMA,
            *reviews.TRIES,
            *corrections.CORRECTIONS_SCHEMA,
            *hidden.UNDONE_SCHEMA,
        ),
    ),
    Migration(13, api_turns.SCHEMA),
    Migration(14, (inbox.READ_POSITIONS, "ALTER TABLE hermes_message_extra ADD COLUMN author_is_agent")),
    Migration(15, (usage.HOURS,)),
    Migration(16, hidden.HIDDEN_SCHEMA),
)


@dataclass(frozen=True, slots=True)
class TableShape:
    """The columns of a shared table in this file, and the SQL that reads and writes them."""

    table: str
    extra_table: str
    extra_key: str
    columns: frozenset[str]
    required: tuple[str, ...]
    optional: tuple[str, ...]
    beside: frozenset[str]
    """Columns of the side table; a file that was not migrated may lack some."""
    fillers: Mapping[str, Json]
    """Values for columns that are NOT NULL without a default, and the marks of a live row."""
    select: str = dataclass_field(init=False)
    """`SELECT … FROM` with required, then optional fields, under their own names. The table is `t`, the side table
    `x`."""

    def __post_init__(self) -> None:
        fields = [f"t.{name}" for name in self.required]
        fields += [f"{self.field(name)} AS {name}" for name in self.optional]
        beside = f"LEFT JOIN {self.extra_table} x ON x.{self.extra_key} = t.{self.required[0]}"
        object.__setattr__(self, "select", f"SELECT {', '.join(fields)} FROM {self.table} t {beside}")

    def field(self, name: str) -> str:
        """Return the expression that reads an optional field."""
        if name not in self.beside:
            return f"t.{name}" if name in self.columns else "NULL"
        return f"coalesce(t.{name}, x.{name})" if name in self.columns else f"x.{name}"

    def insert(self, tx: Tx, values: Mapping[str, Json]) -> int:
        """Insert one row; values without a column go to the side table. Return the new rowid."""
        given = {name: storable(value) for name, value in values.items() if value is not None}
        own = {**self.fillers, **{name: value for name, value in given.items() if name in self.columns}}
        marks = ", ".join("?" * len(own))
        cursor = tx.execute(f"INSERT INTO {self.table} ({', '.join(own)}) VALUES ({marks})", tuple(own.values()))
        rowid = int(cursor.lastrowid or 0)
        key = values.get(self.required[0], rowid)
        self.put_extra(tx, key, {name: value for name, value in given.items() if name not in self.columns})
        return rowid

    def update(self, tx: Tx, key: str | int, values: Mapping[str, Json]) -> None:
        """Set fields of one row, in the table or the side table."""
        own = {name: storable(value) for name, value in values.items() if name in self.columns}
        if own:
            sets = ", ".join(f"{name} = ?" for name in own)
            tx.execute(f"UPDATE {self.table} SET {sets} WHERE {self.required[0]} = ?", (*own.values(), key))
            # The column may be newer than a value in the side table, which must not reappear.
            clears = ", ".join(f"{name} = NULL" for name in own)
            tx.execute(f"UPDATE {self.extra_table} SET {clears} WHERE {self.extra_key} = ?", (key,))
        self.put_extra(tx, key, {name: storable(value) for name, value in values.items() if name not in self.columns})

    def put_extra(self, tx: Tx, key: str | int, values: Mapping[str, Json]) -> None:
        """Store values that the table has no column for."""
        if not values:
            return
        names = ", ".join(values)
        sets = ", ".join(f"{name} = excluded.{name}" for name in values)
        tx.execute(
            f"INSERT INTO {self.extra_table} ({self.extra_key}, {names}) VALUES (?, {', '.join('?' * len(values))}) "
            f"ON CONFLICT ({self.extra_key}) DO UPDATE SET {sets}",
            (key, *values.values()),
        )


def refuse_foreign(tx: Tx) -> None:
    """Raise StoreDamagedError if the shared tables exist but lack required columns."""
    names = tx.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('sessions', 'messages')")
    for table in [row["name"] for row in names]:
        required = SESSION_REQUIRED if table == "sessions" else MESSAGE_REQUIRED
        _check_columns(table, {row["name"] for row in tx.execute(f"PRAGMA table_info({table})")}, required)


def _check_columns(table: str, columns: Collection[str], required: Sequence[str]) -> None:
    if missing := [name for name in required if name not in columns]:
        raise StoreDamagedError(
            f"table {table} has no column {', '.join(missing)}",
            hint="This is not a hermes store; nothing was changed",
        )


def storable(value: Json) -> Json:
    """Return `value` as SQLite accepts it: lone surrogates, which models and terminals do send, become U+FFFD."""
    return SURROGATE.sub("\ufffd", value) if isinstance(value, str) and not value.isascii() else value


def as_text(value: object) -> str | None:
    """Return a stored value as text, even where an older program stored bytes or a number."""
    if value is None or isinstance(value, str):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def as_time(value: object) -> float:
    """Return a stored time in Unix seconds, even where another program stored milliseconds or text; 0 if it is
    invalid."""
    try:
        seconds = float(value) if isinstance(value, (int, float, str)) else 0.0
    except ValueError:
        seconds = _iso_time(str(value))
    if not 0 <= seconds < float("inf"):
        return 0.0
    while seconds > MAX_EPOCH_SECONDS:
        seconds /= 1000
    return seconds


def _iso_time(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def unmended_rows(messages: TableShape) -> str:
    """Return the condition on `messages t` for live rows of a file without hidden or restored rows."""
    return "t.active = 1" if "active" in messages.columns else "1"


def live_rows(messages: TableShape) -> str:
    """Return the condition on `messages t` for live rows, which excludes those an older version compressed or
    rewound."""
    live = f"(t.active = 1 OR {hidden.RESTORED})" if "active" in messages.columns else "1"
    return f"({live} AND NOT {hidden.HIDDEN})"


def kept_rows(messages: TableShape) -> str:
    """Return the condition on `messages t` for the history: live and compressed rows, but no retracted ones."""
    live = live_rows(messages)
    return f"({live} OR (t.compacted = 1 AND NOT {hidden.HIDDEN}))" if "compacted" in messages.columns else live


def undone_rows(messages: TableShape) -> str:
    """Return the condition on `messages t` for retracted rows: rewound by an older version, or undone by us."""
    if "active" not in messages.columns:
        return hidden.UNDONE
    compacted = "t.compacted = 1" if "compacted" in messages.columns else "0"
    rewound = f"t.active = 0 AND NOT {compacted} AND NOT {hidden.RESTORED} AND NOT {hidden.HIDDEN}"
    return f"({hidden.UNDONE} OR ({rewound}))"


def index_parents(tx: Tx, sessions: TableShape) -> None:
    """Create the index on parent sessions, if the file has the column."""
    if "parent_session_id" in sessions.columns:
        tx.execute(
            "CREATE INDEX IF NOT EXISTS hermes_sessions_by_parent ON sessions (parent_session_id) "
            "WHERE parent_session_id IS NOT NULL"
        )


def read_shape(tx: Tx) -> tuple[TableShape, TableShape]:
    return (
        _table_shape(tx, "sessions", "hermes_session_extra", "session_id", SESSION_REQUIRED, SESSION_OPTIONAL),
        _table_shape(tx, "messages", "hermes_message_extra", "message_id", MESSAGE_REQUIRED, MESSAGE_OPTIONAL),
    )


def _table_shape(
    tx: Tx, table: str, extra: str, extra_key: str, required: Sequence[str], optional: Sequence[str]
) -> TableShape:
    info = tx.execute(f"PRAGMA table_info({table})").fetchall()
    columns = frozenset(row["name"] for row in info) - SIDE_TABLE_ONLY
    _check_columns(table, columns, required)
    fillers: dict[str, Json] = {
        row["name"]: 0 if any(word in row["type"].upper() for word in NUMERIC) else ""
        for row in info
        if row["notnull"] and row["dflt_value"] is None and not row["pk"]
    }
    fillers |= {name: mark for name, mark in LIVE_MARKS.items() if name in columns}
    beside = frozenset(row["name"] for row in tx.execute(f"PRAGMA table_info({extra})"))
    return TableShape(table, extra, extra_key, columns, tuple(required), tuple(optional), beside, fillers)
