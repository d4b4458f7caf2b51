"""Command output: lines for people, JSON for programs, one line per error."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TextIO

from hermes.cli.own_name import advise
from hermes.cli.rows import fold, hang
from hermes.errors import HermesError
from hermes.redaction import hide_passwords
from hermes.types import Json, Session

DIRECTION_CONTROLS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Unicode direction controls: they could make a line look like another one."""
CONTROL = {code: None for code in (*range(32), *range(127, 160), *DIRECTION_CONTROLS) if code not in (9, 10)}

QUIET_SECONDS, PROGRESS_SECONDS = 0.5, 10.0
"""Delay before the first progress line, and interval between further ones."""
MAX_EPOCH_SECONDS = 32503680000.0
"""The year 3000; some platforms cannot format later dates."""


def printable(text: str) -> str:
    """Return `text` without control and direction characters, so that stored text cannot manipulate the terminal or
    imitate other output."""
    return text.translate(CONTROL)


def say(text: str = "") -> None:
    """Write one line to standard output."""
    sys.stdout.write(f"{text}\n")


def say_advice(text: str) -> None:
    """Write advice to standard output, wrapped like `note`."""
    say(_advice(text, sys.stdout))


def note(text: str) -> None:
    """Write one line to standard error: progress, notices and advice, never the result. At a terminal it is wrapped
    between words; a two-column line wraps within its second column."""
    sys.stderr.write(f"{_advice(text, sys.stderr)}\n")
    sys.stderr.flush()


def _advice(text: str, stream: TextIO) -> str:
    if not stream.isatty():
        return advise(text)
    columns = shutil.get_terminal_size().columns
    rows: list[str] = []
    for line in (row for given in advise(text).split("\n") for row in hang(given, columns).split("\n")):
        full, rest = fold(line, columns)
        rows += [*full, rest]
    return "\n".join(rows)


@contextmanager
def saying(what: str) -> Iterator[None]:
    """Print `what` to standard error if the block takes longer than a moment, then the elapsed time at intervals."""
    begun, is_over = time.monotonic(), threading.Event()

    def print_progress() -> None:
        if is_over.wait(QUIET_SECONDS):
            return
        note(f"{what} …")
        while not is_over.wait(PROGRESS_SECONDS):
            note(f"{what} … ({time.monotonic() - begun:.0f} s)")

    telling = threading.Thread(target=print_progress, daemon=True)
    telling.start()
    try:
        yield
    finally:
        is_over.set()
        telling.join()


def use_color(setting: str, env: Mapping[str, str]) -> bool:
    """Return True if `display.color` wants colours. With `auto`: at a terminal that supports them, unless NO_COLOR is
    set."""
    if setting != "auto":
        return setting == "always"
    return sys.stdout.isatty() and env.get("TERM") != "dumb" and not env.get("NO_COLOR")


def can_redraw() -> bool:
    """Return True if standard output is a terminal whose rows can be redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def print_json(value: Json) -> None:
    """Print the result as JSON."""
    say(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def print_error(error: HermesError) -> None:
    """Print an error as one line."""
    note(f"hermes: {hide_passwords(printable(error.line()))}")


def show_time(seconds: float) -> str:
    """Format a time in the local time zone."""
    return f"{datetime.fromtimestamp(min(max(seconds, 0.0), MAX_EPOCH_SECONDS)):%Y-%m-%d %H:%M}"


def session_head(session: Session) -> str:
    """Return the heading of a session: id, source, start, title."""
    title = printable(session.title or "(no title)")
    return f"{session.id} · {session.source} · {show_time(session.started_at)} · {title}"


def one_line(text: str, width: int) -> str:
    """Return `text` on one line, cut to `width` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
