"""The export file: JSON lines. The first identifies the format, marks in between hold a checksum, the last one counts.

    {"hermes_memory_export": 1, "workspace": "w", "source": "hermes"}
    {"peers": {"id": "ann", …}}                    one line for each item, under its section
    {"mark": {"section": "peers", "after": 7, "sha256": "…"}}
    {"end": {"counts": {"peers": 1}, "lacking": {}, "sha256": "…"}}

A checksum covers all lines before its own.

The sections of an export, in import order: no item refers to a later section.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from hermes.errors import TransferError

SECTIONS = (
    "workspace",
    "peers",
    "sessions",
    "scopes",
    "memberships",
    "messages",
    "departures",
    "conclusions",
    "cards",
    "summaries",
    "webhooks",
)
TransferItem = Mapping[str, Any]
Numbered = Sequence[tuple[int, dict[str, Any]]]
"""Items with their line numbers."""
TellProgress = Callable[[str, int], None]
"""A callback that receives a section and its number of finished items."""
Report = dict[str, Any]
Lacking = Counter[str]
"""Kinds of data that could not be transferred, with counts."""


@dataclass(frozen=True, slots=True)
class SectionPage:
    """A page of a section; `after` is the position of the next page, None for the last one."""

    items: list[dict[str, Any]]
    after: Any


class Source(Protocol):
    """A server that is read."""

    kind: str
    """`hermes` or `honcho`: the API that is used."""

    def check(self) -> None:
        """Raise TransferError if the workspace does not exist."""

    def pages(self, section: str, after: Any) -> Iterator[SectionPage]:
        """Yield the pages of a section from a position on. At least one; the last has no `after`."""

    def saw(self, section: str, item: TransferItem) -> None:
        """Record an item that is in the file, from this or an earlier run."""

    def lacking(self) -> Lacking:
        """Return the counts of data that the server does not return."""


FORMAT_VERSION = 1
HEAD, MARK, END = "hermes_memory_export", "mark", "end"
MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_ITEMS_PER_MARK = 1000
"""Maximum number of items between two marks."""


@dataclass(frozen=True, slots=True)
class ReadLine:
    """A line of the file: its number, its only or first key, and the value of that key."""

    number: int
    kind: str
    said: Any
    end: int
    """Offset of the next line in the file."""


@dataclass(slots=True)
class LineProgress:
    """Checksum and counts of the lines read or written so far."""

    digest: Any = field(default_factory=hashlib.sha256)
    counts: Counter[str] = field(default_factory=Counter)

    def sha256(self) -> str:
        return str(self.digest.hexdigest())


def encode(value: dict[str, Any]) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate: only an escape can represent it
        return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def write_line(file: BinaryIO, so_far: LineProgress, value: dict[str, Any]) -> None:
    raw = encode(value)
    so_far.digest.update(raw)
    file.write(raw)


def read_lines(path: Path, so_far: LineProgress) -> Iterator[ReadLine]:
    """Yield every line, checked against the lines before it. An incomplete last line is ignored."""
    place = 0
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                raise damaged(path, number, f"is longer than {MAX_LINE_BYTES} bytes")
            if not raw.endswith(b"\n"):
                return
            line = _parse(path, number, raw, place + len(raw))
            if number == 1:
                _check_head(path, line)
            elif line.kind in (MARK, END) and line.said.get("sha256") != so_far.sha256():
                raise damaged(path, number, "has a wrong checksum: a line before it was changed")
            elif line.kind in SECTIONS:
                so_far.counts[line.kind] += 1
            so_far.digest.update(raw)
            place += len(raw)
            yield line


def _parse(path: Path, number: int, raw: bytes, end: int) -> ReadLine:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise damaged(path, number, f"is not JSON: {error}") from error
    if number == 1:
        return ReadLine(number, HEAD, value, end)
    if not isinstance(value, dict) or len(value) != 1:
        raise damaged(path, number, "is not one item of an export")
    [(kind, said)] = value.items()
    if kind not in (*SECTIONS, MARK, END) or not isinstance(said, dict):
        raise damaged(path, number, f"has an unknown section or invalid item: '{str(kind)[:40]}'")
    return ReadLine(number, kind, said, end)


def _check_head(path: Path, line: ReadLine) -> None:
    said = line.said if isinstance(line.said, dict) else {}
    version = said.get(HEAD)
    if version is None or not isinstance(said.get("workspace"), str):
        raise damaged(path, 1, "is not the first line of a memory export")
    if version != FORMAT_VERSION:
        raise damaged(path, 1, f"has format {str(version)[:20]}, but this version reads format {FORMAT_VERSION}")


def damaged(path: Path, number: int, problem: str) -> TransferError:
    """Return the error for a problem in a line of the file."""
    return TransferError(f"{path}: line {number} {problem}", hint="Take another copy of it, or export again")


@dataclass(frozen=True, slots=True)
class Checked:
    """The summary of a complete file."""

    workspace: str
    counts: dict[str, int]
    lacking: dict[str, int]
    sha256: str


def check_file(path: Path) -> Checked:
    """Read the whole file. Raises TransferError, with the line, if it is not an export, damaged or incomplete."""
    so_far = LineProgress()
    workspace = ""
    last: ReadLine | None = None
    waiting = 0
    try:
        for line in read_lines(path, so_far):
            if last is not None and last.kind == END:
                raise damaged(path, line.number, "comes after the end")
            if line.number == 1:
                workspace = line.said["workspace"]
            waiting = 0 if line.kind == MARK else waiting + 1
            if waiting > MAX_ITEMS_PER_MARK:
                raise damaged(path, line.number, f"comes after {MAX_ITEMS_PER_MARK} others without a checksum")
            last = line
    except OSError as error:
        raise TransferError(f"{path} cannot be read: {error.strerror}") from error
    if last is None:
        raise damaged(path, 1, "is missing: the file is empty")
    if last.kind != END:
        hint = "Run the same `hermes memory export` again: it resumes there"
        raise TransferError(f"{path} is incomplete: it ends at line {last.number}", hint=hint)
    counts = last.said.get("counts")
    if counts != so_far.counts:
        raise damaged(path, last.number, "has wrong item counts")
    return Checked(workspace, counts, last.said.get("lacking", {}), last.said["sha256"])


@dataclass(frozen=True, slots=True)
class Chunk:
    """Items of one section with their line numbers."""

    section: str
    items: list[tuple[int, dict[str, Any]]]

    @property
    def last(self) -> int:
        return self.items[-1][0]


def read_chunks(path: Path) -> Iterator[Chunk]:
    """Yield the items of a checked file, grouped by section, between two marks at a time."""
    waiting: list[ReadLine] = []
    for line in read_lines(path, LineProgress()):
        if line.kind in SECTIONS:
            waiting.append(line)
        elif waiting:
            for section in dict.fromkeys(one.kind for one in waiting):
                yield Chunk(section, [(one.number, one.said) for one in waiting if one.kind == section])
            waiting = []
