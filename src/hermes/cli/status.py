"""The status line: which model answers, in which session, with which memory."""

from __future__ import annotations

from msgspec import Struct

from hermes.cli.rows import columns_of, head

APART = " · "


class ChatStatus(Struct, frozen=True):
    """What a person always wants to see."""

    model: str
    session: str
    memory: str

    def line(self, columns: int) -> str:
        """One row of at most `columns`: words go first, then ends of names; memory is never cut before they are."""
        full = f"model {self.model}{APART}session {self.session}{APART}memory {self.memory}"
        if columns_of(full) <= columns:
            return full
        free = columns - columns_of(self.memory) - 2 * len(APART)
        session = head(self.session, max(4, free - min(columns_of(self.model), free // 2)))
        model = head(self.model, max(4, free - columns_of(session)))
        return head(APART.join((model, session, self.memory)), columns)
