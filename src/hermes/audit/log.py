"""Compressions in a profile's logs: every start is paired with its end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Literal

from hermes.files import check_file

COMPRESSION_HINT = b"compression "
TEXT = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)\d* +[A-Z]+ +(?:\[(?P<bracket>.*)\] +)?[\w.]+: +"
    r"(?P<message>(?:context )?compression .*)"
)
MESSAGE = re.compile(
    r"(?:context )?compression (?P<event>[a-z]+): +session=(?P<session>.+?)"
    r"(?:(?: op=(?P<op>\S+))? +messages=(?P<count>\d+)| was already )"
)
NO_TASK = "-"
"""The bracket of a line without a task."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log line of a compression. `op` is missing in the format of older versions. `time` is Unix seconds, from local
    time; `count` is the number of messages when the compression began."""

    time: float
    bracket: str
    event: str
    session_id: str
    op: str | None
    count: int = 0


def parse_line(raw: bytes) -> LogLine | None:
    """Return the parsed line; None for other and unreadable lines."""
    if COMPRESSION_HINT not in raw:
        return None
    text = raw.decode("utf-8", "replace").strip()
    fields = _json_fields(text) if text.startswith("{") else _text_fields(text)
    if fields is None:
        return None
    stamp, bracket, message = fields
    found = MESSAGE.match(message)
    if found is None:
        return None
    try:
        time = datetime.fromisoformat(stamp.replace(",", ".")).timestamp()
        count = int(found["count"] or 0)
    except (ValueError, OverflowError, OSError):
        return None
    return LogLine(time, bracket, found["event"], found["session"], found["op"], count)


def _text_fields(text: str) -> tuple[str, str, str] | None:
    found = TEXT.match(text)
    return (found["time"], found["bracket"] or NO_TASK, found["message"]) if found else None


def _json_fields(text: str) -> tuple[str, str, str] | None:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    stamp, bracket, message = entry.get("time"), entry.get("session"), entry.get("message")
    if not (isinstance(stamp, str) and isinstance(bracket, str) and isinstance(message, str)):
        return None
    return stamp, bracket, message


MAX_LINE_BYTES = 64 * 1024
"""Bytes of a line that are read; the rest is skipped."""
MIN_OVERLAP_SECONDS = 2.0
"""Time that two compressions of a session must overlap, because a start line comes just before the lease."""
MAX_COMPRESSION_SECONDS = 3600.0
"""Longest duration of a compression."""
STARTED = "started"
DONE = "done"

AnomalyCode = Literal["log-anomaly-a", "log-anomaly-b", "log-overlap"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One compression: its start line and, unless the log breaks off, its end line."""

    start: LogLine
    end: LogLine | None

    @property
    def crossed(self) -> bool:
        """True if a task of one session worked on another: bracket and session differ (anomaly B)."""
        return self.start.bracket not in (self.start.session_id, NO_TASK)

    @property
    def moved(self) -> bool:
        """True if it ended in another session than it began in (anomaly A)."""
        return self.end is not None and self.end.session_id != self.start.session_id

    @property
    def ours(self) -> bool:
        """True if this version wrote it: then the anomaly is a defect of ours."""
        return self.start.op is not None


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A pattern that must not occur in a log, described in one sentence."""

    code: AnomalyCode
    sessions: tuple[str, ...]
    detail: str
    ours: bool


@dataclass(slots=True)
class LogAudit:
    """The result of reading the logs. `unreadable` has each unreadable file with the reason."""

    operations: list[Operation] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    unfinished: list[Operation] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def log_files(newest: Path) -> list[Path]:
    """Return `agent.log` and its rotated files (`agent.log.1`, …), oldest first."""
    rotated = [
        (int(number), path)
        for path in newest.parent.glob(f"{newest.name}.*")
        if (number := path.name.removeprefix(f"{newest.name}.")).isdecimal()
    ]
    return [path for _, path in sorted(rotated, reverse=True)] + ([newest] if newest.exists() else [])


def audit_log(newest: Path) -> LogAudit:
    """Read the log and its rotated files as a stream. Unreadable files are listed in `unreadable`; other lines are
    skipped."""
    audit = LogAudit()
    try:
        files = log_files(newest)
    except OSError as error:
        audit.unreadable.append(f"{newest.parent}: {error.strerror}")
        return audit
    audit.operations = pair_lines(_read_lines(files, audit.unreadable))
    audit.unfinished = [operation for operation in audit.operations if operation.end is None]
    audit.anomalies = [
        *_find_moved(audit.operations),
        *_find_crossed(audit.operations),
        *_find_overlaps(audit.operations),
    ]
    return audit


def pair_lines(lines: Iterable[LogLine]) -> list[Operation]:
    """Return the operations in the order of their starts. Ends without a start in the log are ignored."""
    starts: list[LogLine] = []
    ends: dict[int, LogLine] = {}
    waiting: dict[tuple[str, str], list[int]] = {}
    for line in lines:
        if line.event == STARTED:
            waiting.setdefault(_name(line), []).append(len(starts))
            starts.append(line)
            continue
        places = waiting.get(_name(line)) or _moved_away(line, starts, waiting)
        if places:
            place = max(places, key=lambda place: (*_likeness(starts[place], line), place))
            places.remove(place)
            ends[place] = line
    return [Operation(start, ends.get(place)) for place, start in enumerate(starts)]


def _name(line: LogLine) -> tuple[str, str]:
    """Return the common key of an operation's two lines: in the format of older versions the task, if it is named."""
    if line.op is not None:
        return ("op", line.op)
    return ("session", line.session_id) if line.bracket == NO_TASK else ("task", line.bracket)


def _likeness(start: LogLine, end: LogLine) -> tuple[bool, bool]:
    return start.session_id == end.session_id, start.count == end.count


def _moved_away(end: LogLine, starts: list[LogLine], waiting: dict[tuple[str, str], list[int]]) -> list[int] | None:
    """Return the starts that may belong to an end in a new session without a start of that name: some versions switch
    to the new name while they rotate. Such a start has the same number of messages, and its session was not compressed
    again since."""
    if end.op is not None or end.event != DONE:
        return None
    newest = {start.session_id: place for place, start in enumerate(starts)}
    alike = [
        (place, places)
        for name, places in waiting.items()
        if name[0] != "op"
        for place in places
        if starts[place].count == end.count > 0
        and 0 <= end.time - starts[place].time <= MAX_COMPRESSION_SECONDS
        and newest[starts[place].session_id] == place
    ]
    return max(alike)[1] if alike else None


def _read_lines(files: Iterable[Path], unreadable: list[str]) -> Iterator[LogLine]:
    for path in files:
        try:
            check_file(path)
            with path.open("rb") as file:
                yield from filter(None, map(parse_line, _beginnings(file)))
        except OSError as error:
            unreadable.append(f"{path}: {error.strerror}")


def _beginnings(file: BinaryIO) -> Iterator[bytes]:
    """Yield the beginning of each line, up to MAX_LINE_BYTES."""
    whole = True
    while raw := file.readline(MAX_LINE_BYTES):
        begins, whole = whole, raw.endswith(b"\n")
        if begins:
            yield raw


def _find_moved(operations: Iterable[Operation]) -> Iterator[Anomaly]:
    for operation in operations:
        start, end = operation.start, operation.end
        if end is not None and operation.moved:
            yield Anomaly(
                "log-anomaly-a",
                (start.session_id, end.session_id),
                f"a compression began in session {start.session_id} and ended in {end.session_id}: the conversation's "
                "id changed, and what still used the first id no longer saw it",
                operation.ours,
            )


def _find_crossed(operations: Iterable[Operation]) -> Iterator[Anomaly]:
    for operation in operations:
        start = operation.start
        if operation.crossed:
            yield Anomaly(
                "log-anomaly-b",
                (start.session_id, start.bracket),
                f"session {start.session_id} was compressed by the task of session {start.bracket}: two conversations "
                "were taken for one",
                operation.ours,
            )


def _find_overlaps(operations: Iterable[Operation]) -> Iterator[Anomaly]:
    """Yield overlapping compressions that both changed something; one that finds another at work and stops is
    correct."""
    latest: dict[str, Operation] = {}
    done = [operation for operation in operations if operation.end is not None and operation.end.event == DONE]
    for operation in sorted(done, key=lambda found: found.start.time):
        before = latest.get(operation.start.session_id)
        if (
            before is not None
            and before.end is not None
            and before.end.time - operation.start.time >= MIN_OVERLAP_SECONDS
        ):
            yield Anomaly(
                "log-overlap",
                (operation.start.session_id,),
                f"two compressions of session {operation.start.session_id} ran at the same time: "
                "what one left out the other may have brought back, or the other way round",
                operation.ours,
            )
        latest[operation.start.session_id] = operation
