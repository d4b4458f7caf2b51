"""The status line: which model answers, in which session, what that has cost, and with which memory."""

from __future__ import annotations

from msgspec import Struct

from hermes.cli.rows import columns_of, head

APART = " · "
NOT_CHOSEN = "not chosen yet"
LEAST = 8
"""Columns that a name keeps beside the counts."""
FEW = 10_000
"""Tokens that are named to the last one; of more, the thousands."""


class Gauge(Struct, frozen=True):
    """Tokens that a session has spent, and how full the model's window is."""

    tokens: int
    percent: int
    is_estimate: bool = False
    """The endpoint does not say what it counted."""

    @property
    def spent(self) -> str:
        about = "~" if self.is_estimate else ""
        return about + (f"{self.tokens:,}" if self.tokens < FEW else f"{self.tokens / 1000:,.0f}k")


class ChatStatus(Struct, frozen=True):
    """What a person always wants to see."""

    model: str
    """"" while nobody has chosen one and the endpoint has not said what it has."""
    session: str
    memory: str
    gauge: Gauge | None = None

    @property
    def _model(self) -> str:
        return self.model or f"model {NOT_CHOSEN}"

    def line(self, columns: int) -> str:
        """One row of at most `columns`: words go first, then ends of names, then the counts; memory is cut last."""
        counts = (f"{self.gauge.spent} tokens", f"window {self.gauge.percent} %") if self.gauge else ()
        full = APART.join(
            (f"model {self.model or NOT_CHOSEN}", f"session {self.session}", *counts, f"memory {self.memory}")
        )
        brief = APART.join((self._model, self.session, *counts, self.memory))
        for line in (full, brief):
            if columns_of(line) <= columns:
                return line
        return self._cut(columns)

    def _cut(self, columns: int) -> str:
        counts = f"{self.gauge.spent} tok{APART}{self.gauge.percent} %{APART}" if self.gauge else ""
        if columns_of(counts) + columns_of(self.memory) + 2 * (len(APART) + LEAST) > columns:
            counts = ""
        free = columns - columns_of(counts) - columns_of(self.memory) - 2 * len(APART)
        session = head(self.session, max(4, free - min(columns_of(self._model), free // 2)))
        model = head(self._model, max(4, free - columns_of(session)))
        return head(f"{model}{APART}{session}{APART}{counts}{self.memory}", columns)
