"""The configuration of a running process, read again when a file changes. While a file is invalid, the last valid
configuration stays in force."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from msgspec.structs import replace

from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.guests import check_first
from hermes.honcho.server import Machine
from hermes.memory.provider import STILL_IN_FORCE

log = logging.getLogger(__name__)
FilesStamp = tuple[tuple[int, int, int] | None, ...]
ABOUT = "configuration"


class Watch:
    """Caches the configuration. Costs one `stat` per watched path, and a read when one changed.

    `trouble` is called once when the configuration becomes invalid, and with None when it is valid again. Each warning
    is logged once.
    """

    def __init__(self, machine: Machine, trouble: Callable[[str, str | None], object]) -> None:
        self._machine = machine
        self._candidates = machine.places.watched
        self._trouble = trouble
        self._stamp: FilesStamp | None = None
        self._read: HonchoConfiguration | None = None
        self._good: HonchoConfiguration | None = None
        self._reported: str | None = None
        self._remarks: frozenset[str] = frozenset()

    def current(self) -> HonchoConfiguration:
        """Return the configuration in force. Raises SettingsError until there has been a valid one."""
        stamp = tuple(_stamp(path) for path in self._candidates)
        if self._read is None or stamp != self._stamp:
            self._stamp, self._read = stamp, self._load()
            self._tell(self._read)
            if not self._read.problems:
                self._good = self._read
        return self._good or self._read.checked()

    def _load(self) -> HonchoConfiguration:
        """Read the files. A lost record of guests is a problem like an invalid one."""
        found, good = self._machine.load(), self._good
        if good is None or good.guests.first is None or good.workspace != found.workspace or found.problems:
            return found
        lost = check_first(self._machine.places.guests, good.workspace, good.guests.first, found.guests.first)
        return found if lost is None else replace(found, problems=[lost])

    def _tell(self, found: HonchoConfiguration) -> None:
        for line in found.remarks:
            if line not in self._remarks:
                log.info("%s", line)
        self._remarks = frozenset(found.remarks)
        problem = found.problems[0].message if found.problems else None
        if problem != self._reported:
            self._reported = problem
            in_force = f"; {STILL_IN_FORCE}" if self._good is not None else ""
            self._trouble(ABOUT, None if problem is None else f"{problem}{in_force}")


def _stamp(path: os.PathLike[str]) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - cheaper than Path.stat, and before each message
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
