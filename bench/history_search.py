"""Measures the search of the history: `python -m bench.history_search [DATA]`, against plain FTS5 in the same run.

Plain FTS5 is what a search was before: any of the words, or all of them, in the order of BM25. With DATA, a folder of
conversations as `bench.recall` takes them, it also shows what is found: once as the chat of a group, whose authors have
names, and once as a person talking to an agent.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.full_text import Find
from bench.recall import run_all, show
from bench.table import Row, report, summarise
from bench.talks import DEPTH, Talk, Turn, read_talks
from hermes.clock import SystemClock
from hermes.db.engine import Tx
from hermes.ranking.words import split_words, telling_words
from hermes.scope import OWNER, Guest, Scope
from hermes.store.store import Store
from hermes.store.words import segment, snippet
from hermes.types import Draft, Session

SIZES = (22_000, 200_000)
ROUND_COUNT = 15
SESSION_SIZE = 40
GUEST_COUNT = 50
VOCABULARY_SIZE = 30_000
ROLES = ("user", "assistant")
QUESTIONS = {
    "a rare word": "w9000",
    "two words": "w300 w2000",
    "a question": "when did I tell you about w40 and the w150 of w900 w4000?",
    "frequent words": "what about w1 w3 w5 w9",
    "a question with a date": "what did we say of w200 and w700 on 3 May 2025?",
    "only a date": "3 May 2025",
    "nothing": "unheard wordless",
    "Chinese": "我们什么时候去东京",
    "10,000 characters": " ".join(f"w{n}" for n in range(50, 1700)),
}
FROM = """
    FROM hermes_search f JOIN messages m ON m.id = f.rowid LEFT JOIN hermes_message_extra x ON x.message_id = m.id
    JOIN sessions s ON s.id = m.session_id
    WHERE hermes_search MATCH :query AND m.role <> 'tool' AND coalesce(m.finish_reason, '') <> 'echo'
    AND (m.active = 1 OR m.compacted = 1)
    AND NOT EXISTS (SELECT 1 FROM hermes_hidden h WHERE h.hidden_from IN ('everyone', 'memory') AND h.message_id = m.id)
    AND NOT EXISTS (SELECT 1 FROM hermes_incognito_sessions i WHERE i.session_id = m.session_id AND m.id > i.after_id)
"""
PLAIN = f"SELECT m.* {FROM} AND :within ORDER BY bm25(hermes_search), m.id DESC LIMIT :limit"


def plain(tx: Tx, text: str, scope: Scope, limit: int) -> list[int]:
    """Return the results of plain FTS5."""
    words = [word.rstrip("*") for word in telling_words(split_words(text))]
    within = "1"
    if isinstance(scope, Guest):
        within = f"s.source = '{scope.platform}' AND s.user_id = '{scope.user_id}' AND s.chat_type = 'dm'"
    query = " OR ".join(f'"{segment(word)}"' for word in words)
    rows = tx.execute(PLAIN.replace(":within", within), {"query": query, "limit": limit}).fetchall()
    return [row["id"] for row in rows if snippet(row["content"], text)]


def run(data: Path | None = None) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        rows = [row for size in SIZES for row in asyncio.run(_at_size(Path(folder) / f"{size}.db", size))]
        report("History: a search among N messages", rows)
        if data is not None:
            _recall(Path(folder), read_talks(data))


async def _at_size(path: Path, size: int) -> list[Row]:
    async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:
        await store.write(lambda tx: _fill(tx, size))
        await store.index()
        rows: list[Row] = []
        for name, text in QUESTIONS.items():
            rows += await store.read(lambda tx, text=text, name=name: _compare(store, tx, name, text, OWNER, size))  # type: ignore[misc]
        guest = Guest("telegram", "g7")
        text = QUESTIONS["a question"]
        return [*rows, *await store.read(lambda tx: _compare(store, tx, "a guest's question", text, guest, size))]


def _compare(store: Store, tx: Tx, name: str, text: str, scope: Scope, size: int) -> list[Row]:
    old: list[float] = []
    new: list[float] = []
    for _ in range(ROUND_COUNT):
        old.append(_time(lambda: plain(tx, text, scope, 10)))
        new.append(_time(lambda: store.search.related(tx, text, scope, limit=10, roles=ROLES)))
    baseline = summarise("plain FTS5", old[1:])
    return [
        Row(f"{name}, plain FTS5, N = {size:,}", baseline.p50, baseline.p95),
        summarise(f"{name}, N = {size:,}", new[1:], baseline),
    ]


def _time(call: Callable[[], object]) -> float:
    """Return CPU seconds: a search waits for nothing else, and other processes may be busy on this machine."""
    start = time.thread_time()
    call()
    return time.thread_time() - start


def _fill(tx: Tx, size: int) -> None:
    """Store sessions of two years, with natural word frequencies and replies longer than the messages."""
    chance = random.Random(1)
    weights = [1 / (rank + 5) for rank in range(VOCABULARY_SIZE)]
    words = chance.choices([f"w{rank}" for rank in range(VOCABULARY_SIZE)], weights, k=2_000_000)
    start, step, place = 1_700_000_000.0, 63_000_000 / size, 0
    for number in range(size):
        if number % SESSION_SIZE == 0:
            key, guest = f"s{number // SESSION_SIZE}", number // SESSION_SIZE % GUEST_COUNT
            tx.execute(
                "INSERT INTO sessions (id, source, user_id, chat_type, started_at, message_count) VALUES (?,?,?,?,?,?)",
                (key, "telegram", f"g{guest}", "dm", start + number * step, SESSION_SIZE),
            )
        length = chance.randint(40, 160) if number % 2 else chance.randint(4, 30)
        place = (place + length) % (len(words) - 200)
        said = " ".join(words[place : place + length])
        said += " 我们去年春天去了东京" if number % 500 == 0 else ""
        tx.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
            (key, ROLES[number % 2], said, start + number * step),
        )


def _recall(folder: Path, talks: Sequence[Talk]) -> None:
    for kind in ("a group", "a person and an agent"):
        told = {talk.name: asyncio.run(_tell(folder, talk, in_group=kind == "a group")) for talk in talks}
        ways: dict[str, Find] = {
            "plain FTS5": lambda talk, asked, told=told: told[talk.name].plain(asked.text),  # type: ignore[misc]
            "search": lambda talk, asked, told=told: told[talk.name].search(asked.text),  # type: ignore[misc]
        }
        print(f"\nWhat is found of {kind}")  # noqa: T201 - this is the output
        for name, find in ways.items():
            show(name, *run_all(talks, find))
        for one in told.values():
            one.tx.close()


@dataclass(frozen=True)
class Told:
    """A store with one conversation, and the turn of each of its messages."""

    store: Store
    tx: sqlite3.Connection
    turns: Mapping[int, str]

    def plain(self, text: str) -> list[str]:
        """Return the turns that plain FTS5 finds."""
        return [self.turns[key] for key in plain(self.tx, text, OWNER, DEPTH)]

    def search(self, text: str) -> list[str]:
        """Return the turns that a search finds."""
        hits = self.store.search.related(self.tx, text, OWNER, limit=DEPTH, roles=ROLES)
        return [self.turns[hit.message.id] for hit in hits]


async def _tell(folder: Path, talk: Talk, *, in_group: bool) -> Told:
    path = folder / f"{talk.name}-{in_group}.db"
    async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:
        turns: dict[int, str] = {}
        for session, at in {turn.session: turn.at.timestamp() for turn in reversed(talk.turns)}.items():
            await store.write(
                lambda tx, session=session, at=at: store.sessions.create(tx, Session(session, "cli", at))  # type: ignore[misc]
            )
        for turn in talk.turns:
            said = _draft(talk, turn, in_group=in_group)
            (stored,) = await store.write(
                lambda tx, turn=turn, said=said: store.messages.append(  # type: ignore[misc]
                    tx, turn.session, [said], now=turn.at.timestamp()
                )
            )
            turns[stored.id] = turn.id
        await store.index()
    tx = sqlite3.connect(path)
    tx.row_factory = sqlite3.Row
    return Told(store, tx, turns)


def _draft(talk: Talk, turn: Turn, *, in_group: bool) -> Draft:
    if in_group:
        return Draft("user", turn.text or " ", author_id=turn.speaker, author_name=turn.speaker)
    return Draft("user" if turn.speaker == talk.turns[0].speaker else "assistant", turn.text or " ")


if __name__ == "__main__":
    run(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
