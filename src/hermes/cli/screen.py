"""What is to be seen of a conversation, as rows. Finished rows are taken and printed; the last one still grows."""

from __future__ import annotations

from collections.abc import Callable

from hermes.cli.output import printable
from hermes.cli.rows import fold, head, tail
from hermes.events import (
    Failed,
    MemoryUpdated,
    Notice,
    ReasoningDelta,
    Replied,
    Stopped,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    Waiting,
)
from hermes.settings import MEMORY_NOTICES, SHOW_REASONING, Settings
from hermes.store.held_lease import WAITING

DIM, RESET = "\x1b[2m", "\x1b[0m"


class Screen:
    """Makes rows of what happens. One blank row ends each turn and each command, however the model spaced its reply."""

    def __init__(self, settings: Settings, columns: Callable[[], int], *, colored: bool) -> None:
        self.colored = colored
        self._notices = settings.get(MEMORY_NOTICES)
        self._reasoning = settings.get(SHOW_REASONING)
        self._columns = columns
        self._finished: list[str] = []
        self._growing = ""
        self._blank = 0
        self._dim = False
        self._fenced = False
        self._begun = False

    @property
    def has_finished(self) -> bool:
        """Whether there are rows to take."""
        return bool(self._finished)

    @property
    def is_growing(self) -> bool:
        """Whether a row has begun that has not ended."""
        return bool(self._growing)

    def rows(self) -> list[str]:
        """Everything that was not taken yet, the growing row last: what to show meanwhile."""
        if not self._growing:
            return list(self._finished)
        growing = self._paint(tail(self._growing.rstrip(), self._columns()))
        return [*self._finished, *([""] * self._blank if self._begun else []), growing]

    def take(self) -> list[str]:
        """The finished rows, to be printed once."""
        taken, self._finished = self._finished, []
        return taken

    def say(self, text: str) -> None:
        """Whole lines, broken between words."""
        self._add_lines(text, dim=False)

    def remark(self, text: str) -> None:
        """Whole lines beside the conversation."""
        self._add_lines(text, dim=True)

    def said(self, text: str) -> None:
        """What the person said; blank rows at the beginning of the answer are left out."""
        self.say(text)
        self._begun = False

    def end(self) -> None:
        """A turn or a command is over: leave one blank row."""
        self._end_row()
        self._finished.append("")
        self._blank, self._begun, self._fenced = 0, False, False

    def show(self, event: TurnEvent) -> None:
        """Show what happened in a turn."""
        match event:
            case TextDelta(text):
                self._grow(text, dim=False)
            case ReasoningDelta(text) if self._reasoning:
                self._grow(text, dim=True)
            case ToolStarted(name=name, arguments=arguments):
                self._one_row(f"· {name} {arguments}")
            case ToolProgress(name=name, text=text):
                self._one_row(f"· {name}: {text}")
            case ToolFinished(name=name, result=result, ok=False):
                self.remark(f"· {name}: {head(printable(result), 160)}")
            case MemoryUpdated(action=action, text=text) if self._notices:
                removed = "removed: " if action == "remove" else ""
                self.say(f"💾 Memory updated: {removed}{text}")
            case Notice(text):
                self.remark(text)
            case Waiting():
                self.remark(WAITING)
            case Failed(message=message):
                self.say(f"hermes: {message}")
            case Stopped():
                self.remark("(stopped)")
            case Replied():
                self._end_row()
            case _:
                pass

    def _grow(self, text: str, *, dim: bool) -> None:
        if dim != self._dim and self._growing:
            self._end_row()
        self._dim = dim
        *lines, rest = (self._growing + printable(text).expandtabs(4)).split("\n")
        for line in lines:
            self._growing = line
            self._fold()
            self._end_row()
        self._growing = rest
        self._fold()

    def _fold(self) -> None:
        """Finish what is wider than a row. Code stays whole, so that it can be copied."""
        if self._fenced or self._growing.lstrip().startswith("```"):
            return
        rows, self._growing = fold(self._growing, self._columns())
        for row in rows:
            self._add(row)

    def _end_row(self) -> None:
        row, self._growing = self._growing, ""
        if row.lstrip().startswith("```"):
            self._fenced = not self._fenced
        if row.strip():
            self._add(row)
        else:
            self._blank += 1

    def _add(self, row: str) -> None:
        if self._begun:
            self._finished += [""] * self._blank
        self._blank, self._begun = 0, True
        self._finished.append(self._paint(row))

    def _add_lines(self, text: str, *, dim: bool) -> None:
        if self._growing:
            self._end_row()
        self._blank, self._fenced = 0, False
        self._grow(f"{text}\n", dim=dim)

    def _one_row(self, text: str) -> None:
        self.remark(head(printable(text), self._columns()))

    def dim(self, text: str) -> str:
        """`text` as it shows beside the conversation, where the terminal can."""
        return f"{DIM}{text}{RESET}" if self.colored else text

    def _paint(self, row: str) -> str:
        return self.dim(row) if self._dim else row
