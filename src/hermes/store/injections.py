"""Injections: the memory text that was put into a turn's request, kept for people to inspect, for each session's newest
turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec
from msgspec import Struct

from hermes.db.engine import Tx
from hermes.errors import NotFoundError

SCHEMA = """
CREATE TABLE hermes_injections (
    session_id TEXT NOT NULL,
    turn INTEGER NOT NULL,
    message_id INTEGER NOT NULL,
    at REAL NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (session_id, turn)
) WITHOUT ROWID
"""
MEMORY_PREFIX = "- "
"""Prefix of a line that has a source."""
HEADING_CHARS = 40
MAX_TURNS_KEPT = 50
"""Number of turns per session whose records are kept."""


class InjectedPart(Struct, frozen=True):
    """One piece of recalled text. `cut` is the number of characters left out to fit, `sources` give the reason for each
    line that begins with "- ", `left_out` are short forms of the lines that did not fit."""

    layer: str
    text: str
    as_of: float | None
    tokens: int
    cut: int
    sources: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class InjectedLine(Struct, frozen=True):
    """One line of recalled text as the model saw it: a memory with the reason for it, or a heading."""

    text: str
    why: str = ""
    is_memory: bool = True
    heading: str = ""
    """The heading above a memory within its part, such as a day."""


def lines_of(part: InjectedPart) -> Iterator[InjectedLine]:
    """Yield the lines of a part, each memory with its source."""
    sources, heading = iter(part.sources), ""
    for line in filter(str.strip, part.text.splitlines()):
        if line.startswith("#") or (line.endswith(":") and len(line) < HEADING_CHARS and line[:1].isalnum()):
            heading = "" if line.startswith("#") else line.rstrip(":")
            yield InjectedLine(line, is_memory=False)
        else:
            yield InjectedLine(line, next(sources, "") if line.startswith(MEMORY_PREFIX) else "", heading=heading)
    yield from (InjectedLine("", why, is_memory=False) for why in sources)


class Injection(Struct, frozen=True):
    """The recalled text of one turn, how long the turn waited for it, and which parts (`missed`) were late or
    failed."""

    session_id: str
    turn: int
    message_id: int
    """The message into which the text was put."""
    provider: str
    at: float
    seconds: float
    parts: tuple[InjectedPart, ...]
    missed: dict[str, str]

    @property
    def used(self) -> int:
        """Return the number of memories in the request."""
        return sum(line.is_memory for part in self.parts for line in lines_of(part))


def keep_injection(tx: Tx, made: Injection) -> None:
    """Store a turn's record and delete the session's oldest ones."""
    tx.execute(
        "INSERT OR REPLACE INTO hermes_injections VALUES (?, ?, ?, ?, ?)",
        (made.session_id, made.turn, made.message_id, made.at, msgspec.json.encode(made).decode()),
    )
    tx.execute(
        "DELETE FROM hermes_injections WHERE session_id = ? AND turn <= ?",
        (made.session_id, made.turn - MAX_TURNS_KEPT),
    )


def drop_injections(tx: Tx, is_to_go: Callable[[str], bool], within: Collection[str] | None = None) -> None:
    """Delete the records of turns with a text that is to be forgotten, in all sessions or those in `within`."""
    for row in tx.execute("SELECT session_id, turn, record FROM hermes_injections").fetchall():
        if within is not None and row["session_id"] not in within:
            continue
        made = msgspec.json.decode(row["record"], type=Injection)
        if any(is_to_go(text) for part in made.parts for text in (part.text, *part.left_out)):
            tx.execute(
                "DELETE FROM hermes_injections WHERE session_id = ? AND turn = ?", (row["session_id"], row["turn"])
            )


def find_injection(tx: Tx, session_id: str | None = None, turn: int | None = None) -> Injection:
    """Return the record of a turn: by default the session's newest, or the newest of all. Raises NotFoundError."""
    if session_id is None:
        row = tx.execute("SELECT session_id FROM hermes_injections ORDER BY at DESC LIMIT 1").fetchone()
        if row is None:
            raise NotFoundError("no turn with memory is recorded", hint="A turn leaves a record while memory is on")
        session_id = str(row["session_id"])
    row = tx.execute(
        "SELECT record FROM hermes_injections WHERE session_id = ? AND turn = coalesce(?, turn) "
        "ORDER BY turn DESC LIMIT 1",
        (session_id, turn),
    ).fetchone()
    if row is None:
        which = "no turn" if turn is None else f"no turn {turn}"
        raise NotFoundError(
            f"{which} of session {session_id} has a record of memory", hint=f"The last {MAX_TURNS_KEPT} turns are kept"
        )
    return msgspec.json.decode(row["record"], type=Injection)


def list_injections(tx: Tx, session_id: str) -> list[Injection]:
    """Return the records of a session's turns, oldest first."""
    rows = tx.execute("SELECT record FROM hermes_injections WHERE session_id = ? ORDER BY turn", (session_id,))
    return [msgspec.json.decode(row["record"], type=Injection) for row in rows]
