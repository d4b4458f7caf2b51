"""A conversation as rows. Finished rows are taken and printed; the rest still grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

from hermes.cli.inline import BOLD, DIM
from hermes.cli.markdown import Markdown
from hermes.cli.output import printable
from hermes.cli.own_name import advise
from hermes.cli.pastes import Pastes
from hermes.cli.plain_text import PlainText
from hermes.cli.rows import fold, hang, head
from hermes.cli.session_watch import OthersMessages
from hermes.cli.styled import paint
from hermes.cli.tool_row import ToolRow
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
from hermes.settings import MARKDOWN, MEMORY_NOTICES, SHOW_REASONING, Settings
from hermes.store.held_lease import WAITING

PERSON = f"{BOLD};32"
"""The style of the user's messages."""

RETRY_HINT = " (`/retry` tries again)"
"""Added where a reply was cut off."""

Format: TypeAlias = Markdown | PlainText
"""Renders a streamed text as rows."""


class Screen:
    """Renders a conversation's events as rows. One blank row ends each turn and command, whatever spacing the model
    used.

    If rows cannot be redrawn (`redraws` is false), a reply keeps its Markdown and a tool call takes two rows.
    """

    def __init__(self, settings: Settings, columns: Callable[[], int], *, colored: bool, redraws: bool) -> None:
        self.colored = colored
        self._redraws = redraws
        self._notices = settings.get(MEMORY_NOTICES)
        self._reasoning = settings.get(SHOW_REASONING)
        self._columns = columns
        self._plain = PlainText(columns)
        formats = settings.get(MARKDOWN) and redraws
        self._reply: Format = Markdown(columns, colored=colored) if formats else PlainText(columns)
        self._format: Format = self._plain
        self._style = ""
        self._finished: list[str] = []
        self._tool: ToolRow | None = None
        self._after_tool: list[str] = []
        self._passing = ""
        self._blank = 0
        self._begun = False

    @property
    def has_finished(self) -> bool:
        """True if finished rows can be taken."""
        return bool(self._finished)

    @property
    def is_growing(self) -> bool:
        """True while a text or tool call is unfinished."""
        return self._format.is_growing or self._tool is not None

    def rows(self) -> list[str]:
        """Return all rows not taken yet, finished or growing."""
        growing = [self._paint(row) for row in self._format.growing()]
        if self._tool is not None:
            growing.append(self.dim(self._tool.running(time.monotonic(), self._columns())))
        if self._passing:
            full, rest = fold(self._passing, self._columns())
            growing += [self.dim(row) for row in (*full, rest)]
        if not growing:
            return list(self._finished)
        return [*self._finished, *([""] * self._blank if self._begun else []), *growing]

    def take(self) -> list[str]:
        """Return and remove the finished rows, for printing."""
        taken, self._finished = self._finished, []
        return taken

    def say(self, text: str) -> None:
        """Add lines, wrapped between words; two-column lines keep their columns."""
        self._add_lines("\n".join(hang(line, self._columns()) for line in text.split("\n")), "")

    def add_notice(self, text: str) -> None:
        """Add dimmed lines: notices beside the conversation."""
        self._add_lines(text, DIM)

    def said(self, text: str) -> None:
        """Add the user's message. Leading blank rows of the reply are dropped."""
        self._add_lines(text, PERSON)
        self._begun = False

    def put(self, rows: list[str]) -> None:
        """Add finished rows."""
        self.end_text()
        self._finished += rows

    def show_others(self, others: OthersMessages) -> None:
        """Add messages that others wrote in the session, marked as such."""
        if others.left_out:
            self.add_notice(f"({others.left_out:,} earlier messages of others are left out)")
        for message in others.messages:
            at, text = f"{datetime.fromtimestamp(message.timestamp):%H:%M}", message.content or ""
            if message.role == "user":
                self.add_notice(f"(elsewhere, {at})")
                named = f"{message.author_name}: " if message.author_name else ""
                self._add_lines(f"» {named}{Pastes().shorten(text)}".replace("\n", "\n  "), PERSON)
            elif message is others.messages[0]:
                self.add_notice(f"(elsewhere, {at}, the reply)")
            if message.role != "user":
                self._begun = False
                self._grow(self._reply, text, "")
                self.end()
        if others.messages and others.messages[-1].role == "user":
            self.end()

    def end(self) -> None:
        """End a turn or command with one blank row."""
        self.end_text()
        self._tool, self._passing = None, ""
        self._finished.append("")
        self._blank, self._begun = 0, False

    def show(self, event: TurnEvent) -> None:
        """Add the rows for an event of a turn."""
        self._passing = ""
        match event:
            case TextDelta(text):
                self._grow(self._reply, text, "")
            case ReasoningDelta(text) if self._reasoning:
                self._grow(self._plain, text, DIM)
            case ToolStarted() | ToolProgress() | ToolFinished():
                self._show_tool(event)
            case MemoryUpdated() if self._notices:
                self._say_after_tool(event.line)
            case Notice(text, passes=True) if self._redraws:
                self.end_text()
                self._passing = printable(text)
            case Notice(text):
                self.add_notice(advise(text))
            case Waiting():
                self.add_notice(WAITING)
            case Failed(message=message, text=text):
                self.say(f"hermes: {message}{RETRY_HINT if text else ''}")
            case Stopped():
                self.add_notice("(stopped)")
            case Replied():
                self.end_text()
            case _:
                pass

    def _show_tool(self, event: ToolStarted | ToolProgress | ToolFinished) -> None:
        now, columns = time.monotonic(), self._columns()
        match event:
            case ToolStarted(name=name, arguments=arguments):
                self.end_text()
                self._tool = ToolRow(name, arguments, now)
                if not self._redraws:
                    self.add_notice(self._tool.running(now, columns))
            case ToolProgress(name=name, text=text) if self._tool is not None:
                self._tool.progress = text
                if not self._redraws:
                    self.add_notice(head(printable(f"· {name}: {text}"), columns))
            case ToolFinished(result=result, ok=ok) if self._tool is not None:
                tool, self._tool = self._tool, None
                self.add_notice(tool.finished(result, ok, now, columns))
                for line in self._after_tool:
                    self.say(line)
                self._after_tool = []

    def _say_after_tool(self, text: str) -> None:
        """Add a line, below the tool's row if a tool is running."""
        if self._tool is None:
            self.say(text)
        else:
            self._after_tool.append(text)

    def _grow(self, form: Format, text: str, style: str) -> None:
        if form is not self._format or style != self._style:
            self.end_text()
        self._format, self._style = form, style
        self._add(form.feed(printable(text).expandtabs(4)))

    def end_text(self) -> None:
        """End the growing text."""
        self._add(self._format.end())

    def _add(self, rows: list[str]) -> None:
        for row in rows:
            if not row.strip():
                self._blank += 1
                continue
            if self._begun:
                self._finished += [""] * self._blank
            self._blank, self._begun = 0, True
            self._finished.append(self._paint(row))

    def _add_lines(self, text: str, style: str) -> None:
        self.end_text()
        self._blank = 0
        self._grow(self._plain, f"{text}\n", style)
        self.end_text()

    def dim(self, text: str) -> str:
        """Return `text` dimmed, if colours are on."""
        return paint([(text, DIM)]) if self.colored else text

    def person(self, text: str) -> str:
        """Return `text` in the style of the user's messages, if colours are on."""
        return paint([(text, PERSON)]) if self.colored else text

    def _paint(self, row: str) -> str:
        return paint([(row, self._style)]) if self.colored else row
