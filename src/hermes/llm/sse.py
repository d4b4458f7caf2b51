"""Server-sent events out of bytes that were cut anywhere."""

from __future__ import annotations

from msgspec import Struct

BOM = "\ufeff".encode()


class ServerEvent(Struct, frozen=True):
    """One event: its name (empty when the server gave none) and its data lines, joined."""

    name: str
    data: str


class EventDecoder:
    """Bytes in, whole events out. Lines may end in CR, LF or CRLF; events without data are dropped."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.waiting = 0
        """Bytes that wait for the end of their event."""
        self._at_start = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that `chunk` completes."""
        # A CR that came last may be half of a CRLF: its line is only complete with the next byte.
        waiting = bool(self._pieces) and self._pieces[-1].endswith(b"\r")
        self._pieces.append(chunk)
        self.waiting += len(chunk)
        if b"\n" not in chunk and b"\r" not in chunk[:-1] and not waiting:
            return []
        lines = b"".join(self._pieces).splitlines(keepends=True)
        self._pieces = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        events = [event for line in lines if (event := self._take(line.rstrip(b"\r\n"))) is not None]
        self.waiting = sum(map(len, self._data)) + sum(map(len, self._pieces))
        return events

    def close(self) -> list[ServerEvent]:
        """What is left when the bytes end: servers forget the last empty line."""
        lines = [b"".join(self._pieces).rstrip(b"\r"), b""]
        self._pieces = []
        return [event for line in lines if (event := self._take(line)) is not None]

    def _take(self, line: bytes) -> ServerEvent | None:
        """Read one line; the event that it ends, if it ends one."""
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(BOM)
        if not line:
            return self._dispatch()
        field, _, raw = line.partition(b":")
        value = raw.removeprefix(b" ").decode(errors="replace")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        elif field == b"error":
            # Not in the standard: llama.cpp used to send its errors in a field of this name.
            self._name = "error"
            self._data.append(value)
        return None

    def _dispatch(self) -> ServerEvent | None:
        event = ServerEvent(self._name, "\n".join(self._data)) if self._data else None
        self._name, self._data = "", []
        return event
