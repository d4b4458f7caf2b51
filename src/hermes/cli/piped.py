"""Standard input as part of a single question.

A pipeline (`slow | hermes chat -q …`) is waited for as long as it takes. Other
starters (ssh, a service, a CI runner) leave a pipe open and never write to it: such a pipe is ignored if it stays
silent for `SILENCE_TIMEOUT_SECONDS`.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from hermes.cli.output import note
from hermes.errors import UsageError

FROM_INPUT = "-"
"""Given as the question: read it from standard input."""
MAX_INPUT_BYTES = 1024 * 1024
"""Larger input is refused."""
CHUNK_BYTES = 64 * 1024
SILENCE_TIMEOUT_SECONDS = 3.0
"""How long a silent pipe is waited for before a note is printed or it is ignored."""
PROCESSES = Path("/proc")
ONLY_TEXT = f"Send only text, less than {MAX_INPUT_BYTES:,} bytes"


def ask_with_input(question: str) -> str:
    """Return the question followed by standard input; if the question is `-`, standard input is the question.

    Raises UsageError if the input is not text or too large, or if there is no question.
    """
    descriptor = sys.stdin.fileno()
    if question == FROM_INPUT:
        asked = read_text(descriptor, _wait_for_ever)
        if not asked.strip():
            raise UsageError("standard input is empty", hint="`-q -` reads the question from standard input")
        return asked.strip()
    if not question.strip():
        raise UsageError("the question is empty", hint='Give it in quotes: `hermes chat -q "…"`')
    brought = "" if os.isatty(descriptor) else read_text(descriptor, _wait_for_a_beginning)
    return add_input(question, brought) if brought.strip() else question


def add_input(question: str, brought: str) -> str:
    """Return the question with the piped text in a block below. The block's tag does not occur in the text."""
    tag = "stdin"
    while f"</{tag}>" in brought:
        tag += "_"
    return f"{question}\n\n<{tag}>\n{brought.rstrip()}\n</{tag}>"


def read_text(descriptor: int, wait: Callable[[int], bool]) -> str:
    """Read all input; "" if `wait` returns False."""
    if not wait(descriptor):
        return ""
    read = bytearray()
    while chunk := _next_chunk(descriptor):
        read += chunk
        if len(read) > MAX_INPUT_BYTES:
            size = os.fstat(descriptor).st_size  # zero unless it is a file
            found = f"{size:,} bytes" if size > MAX_INPUT_BYTES else f"more than {MAX_INPUT_BYTES:,} bytes"
            raise UsageError(
                f"standard input has {found}; the limit is {MAX_INPUT_BYTES:,} bytes",
                hint="Send a part of it, for example with `tail -n 500`",
            )
    return _decode(bytes(read))


def _next_chunk(descriptor: int) -> bytes:
    """Return the next bytes, b"" at the end. Waits also on a non-blocking descriptor."""
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except BlockingIOError:
        select.select([descriptor], [], [])
        return _next_chunk(descriptor)
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror}", hint="") from error


def _decode(data: bytes) -> str:
    if b"\0" in data:
        place = data.index(b"\0")
        raise UsageError(f"standard input is not text: byte {place:,} is NUL", hint=ONLY_TEXT)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input is not UTF-8: byte {error.start:,} is 0x{data[error.start]:02x}",
            hint="Convert it first, for example with `iconv -f latin1 -t utf-8`",
        ) from error


def _can_stay_silent(descriptor: int) -> bool:
    """Return True if the descriptor is a pipe or socket, which may stay silent for ever. Files and /dev/null end."""
    mode = os.fstat(descriptor).st_mode
    return os.name == "posix" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def _wait_for_ever(descriptor: int) -> bool:
    if os.isatty(descriptor):
        note("Type the question; Ctrl-D on an empty line ends it.")
    return True


def _wait_for_a_beginning(descriptor: int) -> bool:
    """Wait for the first byte or the end of input. Returns False if the other side may never write and has not."""
    if not _can_stay_silent(descriptor) or select.select([descriptor], [], [], SILENCE_TIMEOUT_SECONDS)[0]:
        return True
    if not may_never_write(descriptor):
        note("hermes: waiting for standard input; `</dev/null` skips it")
        return True
    note(f"hermes: standard input was silent for {SILENCE_TIMEOUT_SECONDS:.0f} s and is ignored; `-q -` waits for ever")
    return False


def may_never_write(descriptor: int) -> bool:
    """Return True if the other end of a pipe or socket belongs to the process that started us, not to a pipeline.

    Decided by who holds the writing end: a shell passes it to the program before us and keeps none; a service, a runner
    and sshd keep it. If that is not visible, a pipeline is assumed.
    """
    if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return True
    try:
        ours = (PROCESSES / "self" / "fd" / str(descriptor)).readlink()
        process = os.getppid()
        while process > 1 and _link(process, 0) == ours:  # this process only inherited our pipe
            process = _parent(process)
        return _can_write(process, ours)
    except PermissionError:  # not our user's: sshd
        return process > 1
    except OSError:  # no /proc, or a process that has just ended
        return False


def _link(process: int, descriptor: int) -> Path | None:
    try:
        return (PROCESSES / str(process) / "fd" / str(descriptor)).readlink()
    except FileNotFoundError:
        return None


def _parent(process: int) -> int:
    """Return the parent's id: field 4 of `stat`. Field 2, the name, may contain spaces and brackets."""
    after_name = (PROCESSES / str(process) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    return int(after_name.split()[1])


def _can_write(process: int, target: Path) -> bool:
    for entry in (PROCESSES / str(process) / "fd").iterdir():
        try:
            if entry.readlink() == target and entry.lstat().st_mode & stat.S_IWUSR:
                return True
        except FileNotFoundError:  # closed meanwhile
            continue
    return False
