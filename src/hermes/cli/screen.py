"""A conversation as rows. Finished rows are taken and printed; the rest still grows.

A tool call as one row: its name, short arguments, and outcome.

Streaming Markdown: turn a growing reply into terminal rows.

    text ── lines ── code │ table │ LineRows (prefix, inline) ── rows

A row is final once it is full or its line has ended. Only the last line may still change, or the first rows of a table
whose column widths are not known yet.

The reply to a single question, printed at a terminal as it is streamed.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

from hermes.app import App
from hermes.cli.input_line import Pastes
from hermes.cli.markdown_code import MarkdownCode
from hermes.cli.markdown_rows import LineRows, MarkdownTable, alignments, is_row
from hermes.cli.output import printable, use_color
from hermes.cli.own_name import advise
from hermes.cli.rows import BOLD, DIM, MAX_LINE_CHARS, PlainText, columns_of, fold, hang, head, paint
from hermes.cli.session_watch import OthersMessages
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
from hermes.settings import COLOR, MARKDOWN, MEMORY_NOTICES, SHOW_REASONING, Settings
from hermes.store.held_lease import WAITING
from hermes.types import Json

MAX_REASON_COLUMNS = 60
"""Longer failure reasons are cut."""


class ToolRow(Struct):
    """A tool call that started at `begun`, in the caller's clock."""

    name: str
    arguments: str
    begun: float
    progress: str = ""

    def running(self, now: float, columns: int) -> str:
        """Return the row of a running call: its progress and elapsed time."""
        return self._row(self.progress or short(self.arguments), f"… {now - self.begun:.0f} s", columns)

    def finished(self, result: str, ok: bool, now: float, columns: int) -> str:
        reason = "" if ok else f": {head(printable(result), MAX_REASON_COLUMNS)}"
        return self._row(short(self.arguments), f"{'✓' if ok else '✗'} {now - self.begun:.1f} s{reason}", columns)

    def _row(self, middle: str, end: str, columns: int) -> str:
        """Return the row; its middle part is cut if it is too long."""
        name = f"· {printable(self.name)}"
        room = columns - columns_of(name) - columns_of(end) - 2
        return head(f"{name} {head(printable(middle), room) if room > 1 else ''} {end}", columns)


def short(arguments: str) -> str:
    """Return a call's arguments without JSON punctuation, or unchanged if they are not a JSON object."""
    with suppress(ValueError, RecursionError):
        values: Json = json.loads(arguments)
        if isinstance(values, dict):
            return ", ".join(f"{name}: {_text(value)}" for name, value in values.items())
    return arguments


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


RULE_COLUMNS = 40
FENCE = r"( *)(`{3,}|~{3,})([^`]*)$"
RULE = r" {0,3}([-*_])(?: *\1){2,} *$"
UNDECIDED = r"[> ]*(?:#{0,6} *|\d{1,9}[.)]? *|[-+*_ ]*|`{1,2}|~{1,2}|(?:`{3}|~{3}|\|).*)$"
"""The start of a line whose kind is not decided yet."""


class Markdown:
    """Renders a reply as rows. With `colored` Markdown is styled; without it the markup stays and only the layout is
    applied."""

    def __init__(self, columns: Callable[[], int], *, colored: bool) -> None:
        self._columns = columns
        self._colored = colored
        self._line = ""
        self._rows: LineRows | None = None
        self._code: MarkdownCode | None = None
        self._header = ""
        self._table: MarkdownTable | None = None

    @property
    def is_growing(self) -> bool:
        """True while a line, table or header is unfinished."""
        return bool(self._line.strip() or self._header or self._table)

    def feed(self, text: str) -> list[str]:
        """Add text; return the rows that became final."""
        *lines, rest = (self._line + text).split("\n")
        finished: list[str] = []
        for line in lines:
            finished += self._end_line(line)
        self._line = rest
        return finished + self._grow_line()

    def end(self) -> list[str]:
        """End the text and return the remaining rows. The next piece starts a new text."""
        line, self._line = self._line, ""
        finished = self._end_line(line) if line.strip() or self._rows is not None else []
        finished += [*self._end_table(), *self._end_header()]
        self._code = None
        return finished

    def growing(self) -> list[str]:
        """Return the rows of the unfinished part, as they look now."""
        columns = self._columns()
        rows = self._table.rows(columns) if self._table is not None else []
        if self._header:
            rows += self._rows_of(self._header).end()
        if self._rows is not None:
            rows += self._rows.growing()
        elif self._line.strip():
            rows.append(self._line if self._code is None else self._code.growing(self._line))
        return rows

    def _grow_line(self) -> list[str]:
        """Return the rows of the growing line that are final."""
        if self._code or self._header or self._table or (self._rows is None and self._is_undecided()):
            return []
        if self._rows is None:
            self._rows = self._rows_of("")
        return self._rows.grow(self._line)

    def _is_undecided(self) -> bool:
        return len(self._line) <= MAX_LINE_CHARS and re.match(UNDECIDED, self._line) is not None

    def _end_line(self, line: str) -> list[str]:
        if self._code is not None:
            return [self._add_code(line, self._code)]
        if self._rows is not None:
            rows, self._rows = self._rows, None
            return [*rows.grow(line), *rows.end()]
        if self._table is not None and is_row(line):
            return self._table.add(line, self._columns())
        if self._header and (aligned := alignments(line, self._header)):
            self._table, self._header = MarkdownTable(self._header, aligned, colored=self._colored), ""
            return []
        return [*self._end_table(), *self._end_header(), *self._begin_block(line)]

    def _begin_block(self, line: str) -> list[str]:
        """Start a new block with `line`."""
        if not line.strip():
            return [""]
        if len(line) > MAX_LINE_CHARS:
            return self._rows_of(line).end()
        if fence := re.match(FENCE, line):
            self._code = MarkdownCode(fence, colored=self._colored)
            return [self._code.first_row]
        if is_row(line):
            self._header = line
            return []
        if re.match(RULE, line):
            return [paint([("─" * min(RULE_COLUMNS, self._columns()), DIM)])] if self._colored else [line.strip()]
        return self._rows_of(line).end()

    def _add_code(self, line: str, code: MarkdownCode) -> str:
        row = code.add(line)
        if code.is_over:
            self._code = None
        return row

    def _end_table(self) -> list[str]:
        table, self._table = self._table, None
        return table.end(self._columns()) if table is not None else []

    def _end_header(self) -> list[str]:
        """Render a presumed table header as an ordinary line."""
        header, self._header = self._header, ""
        return self._rows_of(header).end() if header else []

    def _rows_of(self, line: str) -> LineRows:
        return LineRows(line, self._columns, colored=self._colored)


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


class PrintedReply:
    """Prints a reply with rendered Markdown. Notices are printed elsewhere."""

    def __init__(self, app: App) -> None:
        colored = use_color(app.settings.get(COLOR), app.env)
        columns = shutil.get_terminal_size().columns
        self._screen = Screen(app.settings, lambda: columns, colored=colored, redraws=True)

    def show(self, event: TurnEvent) -> None:
        """Print the rows that became final."""
        if isinstance(event, TextDelta | Replied):
            self._screen.show(event)
        else:
            self._screen.end_text()
        if rows := self._screen.take():
            sys.stdout.write("".join(f"{row}\n" for row in rows))
            sys.stdout.flush()
