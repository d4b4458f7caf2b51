"""A session's context within a budget of tokens: what is held about a peer, a summary, and the newest messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, select

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import messages
from hermes.memory_server.engine.messages import read_range
from hermes.memory_server.engine.recall import write_representation
from hermes.memory_server.engine.summaries import read_summaries
from hermes.memory_server.tokens import count_tokens

SIZES = PreparedStatement(
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
    whole: bool
    """Whether every message of the session is either here or covered by the summary."""

    @property
    def size(self) -> int:
        return sum(row.token_count for row in (*self.messages, *([self.summary] if self.summary else [])))

    def leaves_unsaid(self, rows: Sequence[Record]) -> list[Record]:
        """Those of the conclusions, all about one peer, that the messages here do not already say word for word."""
        if not rows:
            return []
        peer = rows[0].observed
        texts = [row.content for row in self.messages if row.peer == peer]
        if self.summary is not None:
            texts.append(self.summary.content)
        said = "\n".join(texts)
        return [row for row in rows if row.content.removeprefix(f"{peer}: ") not in said]


def share_budget(
    tx: Tx, session: Record, budget: int, held: Sequence[Record], *, with_summary: bool
) -> tuple[Sequence[Record], Window]:
    """Which of the conclusions to show, given in the order of their worth, and the session in what they leave.

    Where it does not fit in whole, conclusions that only repeat it make room. Those that are no longer said by what is
    shown come back, in at most half of the room."""

    def fill(room: int) -> Window:
        return fill_window(tx, session, room, with_summary=with_summary)

    window = fill(budget - _cost(held))
    if window.whole or not held:
        return held, window
    apart = fill(budget).leaves_unsaid(held)
    if len(apart) == len(held):
        return held, window
    rest = budget - _cost(apart)
    missed = fill(rest).leaves_unsaid(held)
    window = fill(rest - min(_cost(missed) - _cost(apart), max(rest, 0) // 2))
    shown = {row.id: row for row in apart}
    room = rest - window.size
    for row in window.leaves_unsaid(held):
        if row.id not in shown and (cost := _cost([row])) <= room:
            shown[row.id] = row
            room -= cost
    kept = list(shown.values())
    return kept, fill(budget - _cost(kept))


def measure_card(card: Sequence[str] | None) -> int:
    return count_tokens("\n".join(card)) if card else 0


def _cost(rows: Sequence[Record]) -> int:
    return count_tokens(write_representation(rows))


def fill_window(tx: Tx, session: Record, budget: int, *, with_summary: bool) -> Window:
    """The summary that fits best and the newest messages that fit with it."""
    summary = _choose_summary(tx, session.id, int(SUMMARY_SHARE * budget)) if with_summary else None
    room = budget - (summary.token_count if summary is not None else 0)
    start = summary.seq if summary is not None else 1
    first = _first_that_fits(tx, session, room, start) if room > 0 else 0
    shown = read_range(tx, session.id, first, session.message_count) if first else []
    return Window(summary, shown, first == start or session.message_count == 0)


def read_summary(tx: Tx, session_id: int, tokens: int) -> str | None:
    """Return the text of the summary that fits into its share of a budget; None when none does."""
    found = _choose_summary(tx, session_id, int(SUMMARY_SHARE * tokens))
    return None if found is None else str(found.content)


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
    return start if first else 0  # all fit, whatever numbers are left
