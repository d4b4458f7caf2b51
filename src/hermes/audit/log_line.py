"""One line of a log about a compression: in our text, our JSON, or the format of older versions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime

HINT = b"compression "
TEXT = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)\d* +[A-Z]+ +(?:\[(?P<bracket>.*)\] +)?[\w.]+: +"
    r"(?P<message>(?:context )?compression .*)"
)
MESSAGE = re.compile(
    r"(?:context )?compression (?P<event>[a-z]+): +session=(?P<session>.+?)"
    r"(?:(?: op=(?P<op>\S+))? +messages=(?P<count>\d+)| was already )"
)
NOBODY = "-"
"""The bracket of a line that names no task."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """`op` is None in the format of older versions. `time` is Unix seconds, from what this machine calls local time;
    `count` is how many messages there were when the compression began."""

    time: float
    bracket: str
    event: str
    session_id: str
    op: str | None
    count: int = 0


def parse_line(raw: bytes) -> LogLine | None:
    """The line, or None when it is about something else or cannot be read."""
    if HINT not in raw:
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
    return (found["time"], found["bracket"] or NOBODY, found["message"]) if found else None


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
