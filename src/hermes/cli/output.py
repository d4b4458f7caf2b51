"""What a command prints: lines for people, JSON for programs, one line for an error."""

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

TURNING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that turn the direction of what follows: with them a line can look like another one."""
CONTROL = {code: None for code in (*range(32), *range(127, 160), *TURNING) if code not in (9, 10)}

QUIET, AGAIN = 0.5, 10.0
"""Seconds before it is said what a command waits for, and between one line and the next."""
LATEST = 32503680000.0
"""The year 3000: no calendar here goes much further."""


def printable(text: str) -> str:
    """`text` without control characters, also those of direction: what someone once wrote cannot steer this terminal
    or pass for something else."""
    return text.translate(CONTROL)


def say(text: str = "") -> None:
    """One line on standard output."""
    sys.stdout.write(f"{text}\n")


def tell(text: str) -> None:
    """Advice on standard output, folded as `note` folds it."""
    say(_advice(text, sys.stdout))


def note(text: str) -> None:
    """One line on standard error: progress, remarks and advice, never the result. At a terminal it is folded between
    words, a line of two columns below its second one."""
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
    """Say on standard error what is being done, once that takes longer than a moment, and now and then for how long."""
    begun, is_over = time.monotonic(), threading.Event()

    def tell_now_and_then() -> None:
        if is_over.wait(QUIET):
            return
        note(f"{what} …")
        while not is_over.wait(AGAIN):
            note(f"{what} … ({time.monotonic() - begun:.0f} s)")

    telling = threading.Thread(target=tell_now_and_then, daemon=True)
    telling.start()
    try:
        yield
    finally:
        is_over.set()
        telling.join()


def use_color(setting: str, env: Mapping[str, str]) -> bool:
    """Whether `display.color` asks for colours: by itself at a terminal that can show them, unless NO_COLOR is set."""
    if setting != "auto":
        return setting == "always"
    return sys.stdout.isatty() and env.get("TERM") != "dumb" and not env.get("NO_COLOR")


def can_redraw() -> bool:
    """Whether standard output is a terminal on which rows can be drawn over."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def print_json(value: Json) -> None:
    """The result, for programs."""
    say(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def print_error(error: HermesError) -> None:
    """The one line that a person reads."""
    note(f"hermes: {hide_passwords(printable(error.line()))}")


def show_time(seconds: float) -> str:
    """A time as this machine's people write it."""
    return f"{datetime.fromtimestamp(min(max(seconds, 0.0), LATEST)):%Y-%m-%d %H:%M}"


def session_head(session: Session) -> str:
    """The line that says which session is shown: id, where it takes place, when it began, title."""
    title = printable(session.title or "(no title)")
    return f"{session.id} · {session.source} · {show_time(session.started_at)} · {title}"


def one_line(text: str, width: int) -> str:
    """The beginning of `text` on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
