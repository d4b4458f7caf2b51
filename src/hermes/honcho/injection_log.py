"""The injection log: a JSON line for each turn with its recalled text. One private file for all programs of a user.
`hermes memory explain` shows the same from the store."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.errors import ProviderError
from hermes.honcho.addresses import EntryTarget
from hermes.memory.provider import Host, Recalled
from hermes.types import Json

log = logging.getLogger(__name__)
VARIABLE = "HONCHO_INJECTION_LOG"
DEFAULT = Path(".honcho") / "injection.log"
"""Relative to the user's folder."""
MAX_LOG_BYTES = 8 * 1024 * 1024
"""At this size the file is renamed to `<name>.1`, replacing an earlier one."""


def find_log(env: Mapping[str, str]) -> Path:
    """Return the path of the log."""
    folder = Path(env["HOME"]) if env.get("HOME") else Path.home()
    given = env.get(VARIABLE, "")
    return Path(os.path.expanduser(given)) if given else folder / DEFAULT  # noqa: PTH111 - an unknown user is no error


class InjectionLog(Struct, frozen=True):
    """The log of one conversation. Writing happens outside the turn; failures are only logged."""

    host: Host
    about: Mapping[str, Json]
    """The fields common to every record of the conversation."""

    @classmethod
    def at(cls, host: Host, target: EntryTarget, session_id: str) -> InjectionLog:
        names = {"workspace": target.workspace, "session": target.session, "hermes_session": session_id}
        return cls(host, names)

    def write(self, turn: int, recalled: Recalled) -> None:
        """Write the record of a turn in the background."""
        record = {
            "at": self.host.clock.now(),
            **self.about,
            "turn": turn,
            "parts": recalled.parts,
            "missed": recalled.missed,
        }
        path = find_log(self.host.env)

        async def append() -> None:
            try:
                await asyncio.to_thread(append_line, path, msgspec.json.encode(record))
            except OSError as error:
                log.warning("the injection log %s cannot be written: %s", path, error.strerror)

        try:
            self.host.spawn(append(), "injection log")
        except ProviderError as error:
            log.warning("a record of the injection log was dropped: %s", error.line())


def append_line(path: Path, line: bytes) -> None:
    """Append a line in one write to a private file. Raises OSError, also for devices and pipes: a device must not
    get other permissions, and a pipe without a reader would block."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    place = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        if hasattr(os, "fchmod"):
            os.fchmod(place, 0o600)
        os.write(place, line + b"\n")
        is_full = os.fstat(place).st_size >= MAX_LOG_BYTES
    finally:
        os.close(place)
    if is_full:
        path.replace(path.with_name(f"{path.name}.1"))
