"""Tokens of a text, exactly as SQLite's full-text index splits and stems it, for other databases. An in-memory SQLite
computes them, since a second tokenizer could differ.

SQLite itself does it, in memory: no second tokenizer could differ.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence

TOKENIZE = "porter unicode61 remove_diacritics 2"
MAX_TOKEN_CHARS = 500
"""Longer tokens are cut, in texts and queries alike: PostgreSQL limits lexemes to 2 KB."""
_local = threading.local()


def split_tokens(texts: Sequence[str]) -> list[list[str]]:
    """Return the tokens of each text, in order."""
    memory = _memory()
    memory.execute("BEGIN")
    try:
        memory.executemany("INSERT INTO texts (rowid, content) VALUES (?, ?)", enumerate(texts))
        found = memory.execute('SELECT doc, "offset", term FROM tokens').fetchall()
    finally:
        memory.execute("ROLLBACK")
    tokens: list[list[str]] = [[] for _ in texts]
    for doc, _, term in sorted(found):
        tokens[doc].append(term[:MAX_TOKEN_CHARS])
    return tokens


def _memory() -> sqlite3.Connection:
    """Return this thread's in-memory database."""
    memory: sqlite3.Connection | None = getattr(_local, "memory", None)
    if memory is None:
        memory = _local.memory = sqlite3.connect(":memory:", isolation_level=None)
        memory.execute(f"CREATE VIRTUAL TABLE texts USING fts5(content, content = '', tokenize = '{TOKENIZE}')")
        memory.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab(texts, 'instance')")
    return memory
