"""A session's context within a token budget: conclusions about a peer, a summary, and the newest messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from sqlalchemy import bindparam, select

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import messages
from hermes.memory_server.engine.messages import read_range
from hermes.memory_server.engine.recall import write_representation
from hermes.memory_server.engine.summaries import cut_extract, read_summaries
from hermes.memory_server.tokens import count_tokens

SIZES = PreparedStatement(
    select(messages.c.seq, messages.c.token_count)
    .where(messages.c.session_id == bindparam("session_id"))
    .where(messages.c.seq >= bindparam("low"), messages.c.seq <= bindparam("high"))
    .order_by(messages.c.seq.desc())
)
SUMMARY_SHARE = 0.4
"""The share of the budget that a summary may take."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a session that fits a budget: the summary, if any, and the messages after it, in order."""

    summary: Record | None
    messages: Sequence[Record]
    whole: bool
    """True if every message of the session is either included or covered by the summary."""

    @property
    def size(self) -> int:
        return sum(row.token_count for row in (*self.messages, *([self.summary] if self.summary else [])))

    def find_unstated(self, rows: Sequence[Record]) -> list[Record]:
        """Return the conclusions, all about one peer, that the messages here do not already state word for word."""
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
    """Choose which conclusions to show, given the most useful first, and fill the rest of the budget with the session.

    If the whole session does not fit, conclusions that only repeat it are dropped. Those that the shown part no longer
    states are added back, in at most half of the room.
    """
    kept = _choose_held(tx, session, budget, held, with_summary=with_summary)
    return kept, fill_window(tx, session, budget - _cost(kept), with_summary=with_summary)


def _choose_held(
    tx: Tx, session: Record, budget: int, held: Sequence[Record], *, with_summary: bool
) -> Sequence[Record]:
    found = read_summaries(tx, session.id) if with_summary and held else {}

    def fill(room: int) -> Window:
        return _fill_uncut(tx, session, room, found)

    if not held or fill(budget - _cost(held)).whole:
        return held
    apart = _take(fill(budget).find_unstated(held), budget)
    if len(apart) == len(held):
        return held
    rest = budget - _cost(apart)
    missed = fill(rest).find_unstated(held)
    window = fill(rest - min(_cost(missed) - _cost(apart), max(rest, 0) // 2))
    shown = {row.id: row for row in apart}
    room = rest - window.size
    for row in window.find_unstated(held):
        if row.id not in shown and (cost := _cost([row])) <= room:
            shown[row.id] = row
            room -= cost
    return list(shown.values())


def _take(rows: Sequence[Record], room: int) -> Sequence[Record]:
    """Return all rows if they fit, else as many of the first as fit."""
    if _cost(rows) <= room:
        return rows
    ends = accumulate(_cost([row]) for row in rows)
    return rows[: sum(end <= room for end in ends)]


def measure_card(card: Sequence[str] | None) -> int:
    return count_tokens("\n".join(card)) if card else 0


def _cost(rows: Sequence[Record]) -> int:
    return count_tokens(write_representation(rows))


def fill_window(tx: Tx, session: Record, budget: int, *, with_summary: bool) -> Window:
    """Return the best summary that fits and the newest messages after it. If no summary fits, and not all messages do,
    the newest messages stand beside an extract of the others, cut to its share.
    """
    found = read_summaries(tx, session.id) if with_summary else {}
    window = _fill_uncut(tx, session, budget, found)
    if window.summary is not None or window.whole:
        return window
    share = int(SUMMARY_SHARE * budget)
    beside = _fill(tx, session, budget - share, None, 1)
    cut = _cut_newest(found, share, "\n".join(row.content for row in beside.messages))
    return window if cut is None else _fill(tx, session, budget, cut, 1)


def _fill_uncut(tx: Tx, session: Record, budget: int, found: Mapping[str, Record]) -> Window:
    summary = _choose_summary(found, int(SUMMARY_SHARE * budget))
    return _fill(tx, session, budget, summary, 1 if summary is None else summary.seq)


def _fill(tx: Tx, session: Record, budget: int, summary: Record | None, start: int) -> Window:
    room = budget - (summary.token_count if summary is not None else 0)
    first = _first_that_fits(tx, session, room, start) if room > 0 else 0
    shown = read_range(tx, session.id, first, session.message_count) if first else []
    return Window(summary, shown, first == start or session.message_count == 0)


def read_summary(tx: Tx, session_id: int, tokens: int) -> str | None:
    """Return the text of the summary that fits its share of a budget, or of an extract cut to it; else None."""
    found, share = read_summaries(tx, session_id), int(SUMMARY_SHARE * tokens)
    chosen = _choose_summary(found, share) or _cut_newest(found, share, "")
    return None if chosen is None else str(chosen.content)


def _choose_summary(found: Mapping[str, Record], budget: int) -> Record | None:
    long, short = found.get("long"), found.get("short")
    if long is not None and long.token_count <= budget and (short is None or long.token_count > short.token_count):
        return long
    return short if short is not None and 0 < short.token_count <= budget else None


def _cut_newest(found: Mapping[str, Record], budget: int, said: str) -> Record | None:
    """Return the summary that covers most, without lines that `said` contains, cut to a budget; None if none can be
    cut.
    """
    newest = max(found.values(), key=lambda one: (one.seq, one.kind == "short"), default=None)
    cut = None if newest is None else cut_extract(newest.content, budget, said)
    return None if newest is None or cut is None else newest._replace(content=cut, token_count=count_tokens(cut))


def _first_that_fits(tx: Tx, session: Record, room: int, start: int) -> int:
    """Return the number of the first message to show; 0 if not even the newest fits."""
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
