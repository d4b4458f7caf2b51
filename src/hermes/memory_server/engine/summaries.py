"""Summaries of a session. Each takes the one before it along, so that the beginning stays.

The floor is made of lines of what was said, and says so. When there is no room for all, the first and the newest stay,
and of the others those whose words are the rarest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, select

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import PreparedStatement, upsert
from hermes.memory_server.db.tables import messages, sessions, summaries
from hermes.memory_server.engine.messages import read_range
from hermes.memory_server.engine.sentence_kinds import MARKED_KINDS
from hermes.memory_server.engine.sentences import is_kept, is_statement, read_message, telling
from hermes.memory_server.tokens import count_tokens

TYPES = {"short": "honcho_chat_summary_short", "long": "honcho_chat_summary_long"}
MAX_TOKENS = {"short": 1000, "long": 4000}
LINE_CHARS = 240
MESSAGES_AT_ONCE = 2000
"""More are not read for one summary: of a session that was never summarised, the first and the last of them are."""
END_SHARE = 4
"""The share of the room that is kept for the beginning, and again for the end."""
MIN_EXTRACT_TOKENS = 100
"""An extract that is cut to less tells too little: its room is the messages'."""
WHOLE = re.compile(r"Extract of messages 1 to \d+ \(")
"""How an extract begins that holds the beginning. Those of earlier versions did not."""
NEWEST = PreparedStatement(
    select(*summaries.c, messages.c.public_id)
    .select_from(summaries.join(messages, messages.c.id == summaries.c.message_id))
    .where(summaries.c.session_id == bindparam("session_id"))
)


def read_summaries(tx: Tx, session_id: int) -> dict[str, Record]:
    """The session's summaries by kind, each with the public id of the last message it covers."""
    return {row.kind: row for row in NEWEST.rows(tx, session_id=session_id)}


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A summary of a session's messages up to number `seq`."""

    kind: str
    content: str
    message_id: int
    seq: int
    token_count: int
    removals: int = 0
    """How often messages had been taken out of the session when it was made."""


def make_summary(tx: Tx, session_id: int, kind: str, seq: int) -> SessionSummary | None:
    """Summarise from the beginning to message number `seq`; None when there is nothing new."""
    before = read_summaries(tx, session_id).get(kind)
    known = [] if before is None or not WHOLE.match(before.content) else before.content.split("\n")[1:]
    start = before.seq + 1 if before is not None and known else 1
    rows = _read_new(tx, session_id, start, seq)
    if not rows:
        return None
    content = extract(known, rows, MAX_TOKENS[kind])
    removals = count_removals(tx, session_id)
    return SessionSummary(kind, content, rows[-1].id, rows[-1].seq, count_tokens(content), removals)


def count_removals(tx: Tx, session_id: int) -> int:
    """How often messages were taken out of a session: a summary that was made before is not to be stored."""
    return int(tx.execute(select(sessions.c.removals).where(sessions.c.id == session_id)).scalar_one_or_none() or 0)


def _read_new(tx: Tx, session_id: int, first: int, last: int) -> list[Record]:
    if last - first < MESSAGES_AT_ONCE:
        return read_range(tx, session_id, first, last)
    half = MESSAGES_AT_ONCE // 2
    return [*read_range(tx, session_id, first, first + half - 1), *read_range(tx, session_id, last - half + 1, last)]


def store_summary(tx: Tx, session_id: int, made: SessionSummary, at: int) -> None:
    """Keep it, unless there is one that covers more."""
    values = {
        "session_id": session_id,
        "kind": made.kind,
        "content": made.content,
        "message_id": made.message_id,
        "seq": made.seq,
        "token_count": made.token_count,
        "created_at": at,
    }
    upsert(tx, summaries, ("session_id", "kind"), values, where=summaries.c.seq < made.seq)


def extract(known: Sequence[str], rows: Sequence[Record], max_tokens: int) -> str:
    """What was known, line by line, and a line for each message, as far as there is room."""
    head = f"Extract of messages 1 to {rows[-1].seq} (made without a model):"
    lines = [*known, *(line for line in map(_line, rows) if line)]
    return "\n".join([head, *_fit(lines, max_tokens - count_tokens(head))])


def cut_extract(content: str, max_tokens: int, said: str = "") -> str | None:
    """Return the lines of an extract that tell most in so many tokens and that `said` does not hold, in their order;
    None where there is too little room or none is left, and for a summary that is no extract."""
    head, *lines = content.split("\n")
    if max_tokens <= MIN_EXTRACT_TOKENS or not WHOLE.match(head):
        return None
    kept = _fit([line for line in lines if line.partition(": ")[2] not in said], max_tokens - count_tokens(head))
    return "\n".join([head, *kept]) if kept else None


def _line(row: Record) -> str:
    """What a message says in at most a line: its statements first, then what tells the most. Secrets, and what is not
    to be remembered, are left out."""
    read = {said.text: is_kept(said) for said in read_message(row.content) if said.kind not in MARKED_KINDS}
    sentences = [*read]
    if not sentences:
        return ""
    best, *others = sorted(sentences, key=lambda said: (read[said], telling(said)), reverse=True)
    chosen, room = {best}, LINE_CHARS - len(best)
    for sentence in others:
        if sentence not in chosen and len(sentence) < room:
            chosen.add(sentence)
            room -= len(sentence) + 1
    text = " ".join(sentence for sentence in sentences if sentence in chosen)
    return f"- {row.peer}: {text[:LINE_CHARS]}"


def _fit(lines: Sequence[str], room: int) -> list[str]:
    """The lines that stay, in their order."""
    costs = [count_tokens(line) + 1 for line in lines]
    if sum(costs) <= room:
        return list(lines)
    kept: set[int] = set()
    for places in (range(len(lines)), range(len(lines) - 1, -1, -1)):
        share = room // END_SHARE
        for place in places:
            share -= costs[place]
            if share < 0:
                break
            kept.add(place)
    left = room - sum(costs[place] for place in kept)
    weights = _weigh(lines)
    for place in sorted(range(len(lines)), key=lambda place: (-weights[place] / costs[place], -place)):
        if place not in kept and costs[place] <= left:
            kept.add(place)
            left -= costs[place]
    return [lines[place] for place in sorted(kept)]


def _weigh(lines: Iterable[str]) -> list[float]:
    """How much each line tells that the others do not; what people say of themselves counts twice."""
    words = [set(re.findall(r"\w+", line.casefold())) for line in lines]
    common = Counter(word for found in words for word in found)
    said = [is_statement(line.partition(": ")[2]) for line in lines]
    return [
        sum(1 / common[word] for word in found) * (2 if statement else 1)
        for found, statement in zip(words, said, strict=True)
    ]
