"""Summaries of a session: the floor, made of the telling sentences of what was said, and says so."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, select

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import Prepared, upserting
from hermes.memory_server.db.tables import messages, summaries
from hermes.memory_server.engine.messages import read_range
from hermes.memory_server.engine.sentences import split_sentences, telling
from hermes.memory_server.tokens import count_tokens

TYPES = {"short": "honcho_chat_summary_short", "long": "honcho_chat_summary_long"}
MAX_TOKENS = {"short": 1000, "long": 4000}
LINE_CHARS = 240


NEWEST = Prepared(
    select(*summaries.c, messages.c.public_id)
    .select_from(summaries.join(messages, messages.c.id == summaries.c.message_id))
    .where(summaries.c.session_id == bindparam("session_id"))
)


def read_summaries(tx: Tx, session_id: int) -> dict[str, Record]:
    """The session's summaries by kind, each with the public id of the last message it covers."""
    return {row.kind: row for row in NEWEST.rows(tx, session_id=session_id)}


@dataclass(frozen=True, slots=True)
class Summary:
    """What a session's messages up to number `seq` come to."""

    kind: str
    content: str
    message_id: int
    seq: int
    token_count: int


def make_summary(tx: Tx, session_id: int, kind: str, seq: int, every: int) -> Summary | None:
    """Summarise up to message number `seq`; None when there is nothing there."""
    rows = read_range(tx, session_id, seq - every + 1, seq)
    if not rows:
        return None
    content = extract(rows, MAX_TOKENS[kind])
    return Summary(kind, content, rows[-1].id, rows[-1].seq, count_tokens(content))


def store_summary(tx: Tx, session_id: int, made: Summary, at: int) -> None:
    """Keep it, unless there is one that covers more."""
    values = {
        "content": made.content,
        "message_id": made.message_id,
        "seq": made.seq,
        "token_count": made.token_count,
        "created_at": at,
    }
    named = {"session_id": session_id, "kind": made.kind, **values}
    tx.execute(upserting(summaries, ("session_id", "kind"), named, where=summaries.c.seq < made.seq))


def extract(rows: list[Record], max_tokens: int) -> str:
    """One line per message, its most telling sentence, the newest kept when there is no room for all."""
    head = f"Extract of {len(rows)} messages (made without a model):"
    room = max_tokens - count_tokens(head)
    lines: list[str] = []
    for row in reversed(rows):
        line = _line(row)
        cost = count_tokens(line) + 1
        if line and cost > room:
            break
        if line:
            lines.append(line)
            room -= cost
    return "\n".join([head, *reversed(lines)])


def _line(row: Record) -> str:
    sentences = split_sentences(row.content)
    if not sentences:
        return ""
    best = max(sentences, key=telling)
    return f"- {row.peer}: {best[:LINE_CHARS]}"
