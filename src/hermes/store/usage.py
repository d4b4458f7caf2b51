"""Token usage of a session by model, and its description."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.types import Spent

SCHEMA = """
CREATE TABLE hermes_usage (
    session_id TEXT NOT NULL,
    model TEXT NOT NULL,
    requests INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    PRIMARY KEY (session_id, model)
) WITHOUT ROWID
"""
HOURS = """
CREATE TABLE hermes_usage_hours (
    hour INTEGER NOT NULL,
    model TEXT NOT NULL,
    requests INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    PRIMARY KEY (hour, model)
) WITHOUT ROWID
"""
"""The same counts for all sessions by hour; `hour` is the number of whole hours since 1970."""
HOUR_SECONDS = 3600
COUNTS = Spent.__struct_fields__
ELSEWHERE = ("input_tokens", "output_tokens")
USAGE_NOTE = "The counts include its turns, summaries, reviews, sub-agents and title."
NOTHING = "No model was asked in this session yet."


class SessionUsage(Struct, frozen=True):
    """Number of user messages in a session, and its usage: by model, most tokens first, and as counted by another
    program that shares the file (None if it has no count)."""

    turns: int
    spent: dict[str, Spent]
    elsewhere: Spent | None


def read_usage(tx: Tx, session_id: str) -> SessionUsage:
    """Return all usage of a session."""
    return SessionUsage(count_turns(tx, session_id), usage_of(tx, session_id), usage_elsewhere(tx, session_id))


def add_usage(tx: Tx, session_id: str, spent: Mapping[str, Spent], *, now: float) -> None:
    """Add usage, given by model."""
    sums = ", ".join(f"{name} = {name} + excluded.{name}" for name in COUNTS)
    for table, key, value in (
        ("hermes_usage", "session_id", session_id),
        ("hermes_usage_hours", "hour", int(now // HOUR_SECONDS)),
    ):
        for model, one in spent.items():
            tx.execute(
                f"INSERT INTO {table} ({key}, model, {', '.join(COUNTS)}) VALUES (?, ?, ?, ?, ?, ?, ?) "
                f"ON CONFLICT ({key}, model) DO UPDATE SET {sums}",
                (value, model, *(getattr(one, name) for name in COUNTS)),
            )


def usage_by_hour(tx: Tx, since: float) -> list[tuple[float, Spent]]:
    """Return the usage of all models together per hour since `since`, with the start of each hour."""
    sums = ", ".join(f"sum({name})" for name in COUNTS)
    rows = tx.execute(
        f"SELECT hour, {sums} FROM hermes_usage_hours WHERE hour >= ? GROUP BY hour ORDER BY hour",
        (int(since // HOUR_SECONDS),),
    )
    return [(row[0] * HOUR_SECONDS, Spent(*row[1:])) for row in rows]


def usage_by_model(tx: Tx, limit: int) -> dict[str, Spent]:
    """Return the usage of all sessions by model, most tokens first."""
    sums = ", ".join(f"sum({name})" for name in COUNTS)
    rows = tx.execute(
        f"SELECT model, {sums} FROM hermes_usage GROUP BY model "
        "ORDER BY sum(prompt_tokens + completion_tokens) DESC, model LIMIT ?",
        (limit,),
    )
    return {row["model"]: Spent(*row[1:]) for row in rows}


def usage_of(tx: Tx, session_id: str) -> dict[str, Spent]:
    """Return the usage of a session by model, most tokens first."""
    rows = tx.execute(
        f"SELECT model, {', '.join(COUNTS)} FROM hermes_usage WHERE session_id = ? "
        "ORDER BY prompt_tokens + completion_tokens DESC, model",
        (session_id,),
    )
    return {row["model"]: Spent(*row[1:]) for row in rows}


def count_turns(tx: Tx, session_id: str) -> int:
    """Return the number of user messages in a session."""
    row = tx.execute("SELECT count(*) FROM messages WHERE session_id = ? AND role = 'user'", (session_id,)).fetchone()
    return int(row[0])


def usage_elsewhere(tx: Tx, session_id: str) -> Spent | None:
    """Return another program's token counts for a session; None if it has none."""
    columns = {row["name"] for row in tx.execute("PRAGMA table_info(sessions)")}
    if not columns.issuperset(ELSEWHERE):
        return None
    row = tx.execute(f"SELECT {', '.join(ELSEWHERE)} FROM sessions WHERE id = ?", (session_id,)).fetchone()
    counts = [value if isinstance(value, int) else 0 for value in row or ()]
    return Spent(prompt_tokens=counts[0], completion_tokens=counts[1]) if any(counts) else None


def describe_length(counted: SessionUsage, compressions: int) -> str:
    """Describe the length of a session."""
    return f"{counted.turns:,} {'turn' if counted.turns == 1 else 'turns'}, {compressions} compressions"


def describe_usage(counted: SessionUsage) -> list[str]:
    """Describe the usage of a session, line by line."""
    spent, elsewhere = counted.spent, counted.elsewhere
    lines = [f"{name}: {_describe(one)}" for name, one in spent.items()]
    if len(spent) > 1:
        lines.append(f"in all: {_describe(sum(spent.values(), Spent()))}")
    if elsewhere is not None:
        lines.append(f"another version counted {elsewhere.prompt_tokens:,} in, {elsewhere.completion_tokens:,} out")
    return [*lines, USAGE_NOTE if spent else NOTHING]


def _describe(spent: Spent) -> str:
    about = "~" if spent.estimated else ""
    cached = f" ({spent.cached_tokens:,} of them from its cache)" if spent.cached_tokens else ""
    told = f"{about}{spent.prompt_tokens:,} tokens in{cached}, {about}{spent.completion_tokens:,} out"
    asked = "1 request" if spent.requests == 1 else f"{spent.requests:,} requests"
    if not spent.estimated:
        return f"{asked}, {told}"
    which = "all" if spent.estimated == spent.requests else f"{spent.estimated:,}"
    return f"{asked}, {told}; {which} of them estimated, since the endpoint does not say"
