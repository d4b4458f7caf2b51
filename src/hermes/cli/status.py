"""The status line: model, session, tokens used, and memory."""

from __future__ import annotations

from msgspec import Struct

from hermes.cli.rows import columns_of, head

APART = " · "
NOT_CHOSEN = "not chosen yet"
MIN_NAME_COLUMNS = 8
"""Least width of a name beside the counts."""
MIN_ROUNDED_TOKENS = 10_000
"""Smaller counts are exact; larger ones are rounded to thousands."""


class Gauge(Struct, frozen=True):
    """Tokens a session has used, and how full the context window is."""

    tokens: int
    percent: int
    is_estimate: bool = False
    """True if the endpoint reports no usage."""

    @property
    def spent(self) -> str:
        about = "~" if self.is_estimate else ""
        return about + (f"{self.tokens:,}" if self.tokens < MIN_ROUNDED_TOKENS else f"{self.tokens / 1000:,.0f}k")


class ChatStatus(Struct, frozen=True):
    """The contents of the status line."""

    model: str
    """Empty while no model is chosen and the endpoint has not listed its models."""
    session: str
    memory: str
    gauge: Gauge | None = None

    @property
    def _model(self) -> str:
        return self.model or f"model {NOT_CHOSEN}"

    def line(self, columns: int) -> str:
        """Return one row of at most `columns`: labels are dropped first, then names are cut, then the counts; memory is
        cut last."""
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
        if columns_of(counts) + columns_of(self.memory) + 2 * (len(APART) + MIN_NAME_COLUMNS) > columns:
            counts = ""
        free = columns - columns_of(counts) - columns_of(self.memory) - 2 * len(APART)
        session = head(self.session, max(4, free - min(columns_of(self._model), free // 2)))
        model = head(self._model, max(4, free - columns_of(session)))
        return head(f"{model}{APART}{session}{APART}{counts}{self.memory}", columns)
