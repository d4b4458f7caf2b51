"""A session's context within a budget of tokens: what is held about a peer, a summary, and the newest messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, select

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import Prepared
from hermes.memory_server.db.tables import messages
from hermes.memory_server.engine.messages import read_range
from hermes.memory_server.engine.summaries import read_summaries
from hermes.memory_server.tokens import count_tokens

SIZES = Prepared(
    select(messages.c.seq, messages.c.token_count)
    .where(messages.c.session_id == bindparam("session_id"))
    .where(messages.c.seq >= bindparam("low"), messages.c.seq <= bindparam("high"))
    .order_by(messages.c.seq.desc())
)
SUMMARY_SHARE = 0.4
"""How much of the budget a summary may take."""


@dataclass(frozen=True, slots=True)
class Window:
    """What fits: the summary, if any, and the messages after it, in order."""

    summary: Record | None
    messages: Sequence[Record]


def measure(representation: str, card: Sequence[str] | None) -> int:
    """How many tokens the text about a peer takes."""
    return count_tokens(representation) + (count_tokens("\n".join(card)) if card else 0)


def fill_window(tx: Tx, session: Record, budget: int, *, with_summary: bool) -> Window:
    """The summary that fits best and the newest messages that fit with it."""
    summary = _choose_summary(tx, session.id, int(SUMMARY_SHARE * budget)) if with_summary else None
    room = budget - (summary.token_count if summary is not None else 0)
    if room <= 0:
        return Window(summary, [])
    start = summary.seq if summary is not None else 1
    first = _first_that_fits(tx, session, room, start)
    return Window(summary, read_range(tx, session.id, first, session.message_count) if first else [])


def _choose_summary(tx: Tx, session_id: int, budget: int) -> Record | None:
    found = read_summaries(tx, session_id)
    long, short = found.get("long"), found.get("short")
    if long is not None and long.token_count <= budget and (short is None or long.token_count > short.token_count):
        return long
    return short if short is not None and 0 < short.token_count <= budget else None


def _first_that_fits(tx: Tx, session: Record, room: int, start: int) -> int:
    """The number of the first message to show; 0 when not even the newest fits."""
    first, step = 0, 64
    last = session.message_count
    while last >= start:
        low = max(start, last - step + 1)
        for row in SIZES.rows(tx, session_id=session.id, low=low, high=last):
            room -= row.token_count
            if room < 0:
                return first
            first = row.seq
        last, step = low - 1, step * 4
    return first
