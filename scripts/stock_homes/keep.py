"""Reduces a home to what an audit reads, as one JSON file for the tests."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from hermes.store.copies import MERGED, SUMMARY

SESSIONS = ("id", "source", "user_id", "session_key", "chat_id", "chat_type", "thread_id", "parent_session_id",
            "started_at", "ended_at", "end_reason", "message_count", "api_call_count", "model_config")  # fmt: skip
MESSAGES = ("id", "session_id", "role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp", "active",
            "compacted")  # fmt: skip
LOG = re.compile(r".*compression (started|done|skipped): .*")
MAX_TEXT_CHARS = 110
"""Kept length of a text: the opening of a summary and the text it was merged into."""


def keep(home: Path, target: Path) -> None:
    """Write `home` to `target`."""
    with closing(sqlite3.connect(home / "state.db")) as db:
        db.row_factory = sqlite3.Row
        kept: dict[str, Any] = {
            "sessions": [_session(row) for row in db.execute(f"SELECT {', '.join(SESSIONS)} FROM sessions")],
            "messages": [_message(row) for row in db.execute(f"SELECT {', '.join(MESSAGES)} FROM messages")],
            "routes": [_route(row) for row in db.execute("SELECT session_key, entry_json FROM gateway_routing")],
        }
    log = (home / "logs" / "agent.log").read_text(encoding="utf-8").splitlines()
    kept["log"] = [line for line in log if LOG.match(line)]
    kept["said"] = json.loads((home / "said.json").read_text(encoding="utf-8"))
    lines = [f'"{name}": [\n{_lines(values)}\n]' for name, values in kept.items()]
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _lines(values: list[Any]) -> str:
    return ",\n".join(json.dumps(value, ensure_ascii=False) for value in values)


def _session(row: sqlite3.Row) -> dict[str, Any]:
    config = json.loads(row["model_config"] or "{}")
    marks = {name: value for name, value in config.items() if name.startswith("_")}
    return {**_filled(row), "model_config": json.dumps(marks)}


def _message(row: sqlite3.Row) -> dict[str, Any]:
    text = row["content"] or ""
    if SUMMARY.match(text):  # its own words are long and always the same
        opening = text[:MAX_TEXT_CHARS].strip() if MERGED in text else f"{text.partition(']')[0]}]"
        text = f"{opening} summary {row['id']} of {row['id']}"
    return {**_filled(row), "content": text if SUMMARY.match(text) else text[:MAX_TEXT_CHARS].strip()}


def _route(row: sqlite3.Row) -> dict[str, Any]:
    entry = json.loads(row["entry_json"])
    return {name: entry[name] for name in ("session_key", "session_id", "updated_at")}


def _filled(row: sqlite3.Row) -> dict[str, Any]:
    return {name: row[name] for name in row.keys() if row[name] is not None}  # noqa: SIM118 - a row iterates over values
