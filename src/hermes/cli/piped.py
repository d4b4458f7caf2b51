"""What comes from standard input together with one question.

A pipeline (`slow | hermes chat -q …`) is waited for as long as it takes. Whoever starts programs may leave a pipe open
and never write to it (ssh, a service, a CI runner): such a pipe is given `PATIENCE` to begin, and then left alone.
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
"""In place of a question: it is what comes from standard input."""
LARGEST = 1024 * 1024
"""Bytes that are taken from standard input."""
CHUNK = 64 * 1024
PATIENCE = 3.0
"""Seconds after which a pipe that nobody has written to is spoken of, or left alone."""
PROCESSES = Path("/proc")
TEXT_ALONE = f"Send text alone, and less than {LARGEST:,} bytes of it"


def ask_with_input(question: str) -> str:
    """The question with what standard input brings; where it is `-`, what that brings is the question.

    Raises UsageError for what is no text, too much, or no question at all.
    """
    descriptor = sys.stdin.fileno()
    if question == FROM_INPUT:
        asked = read_text(descriptor, _wait_for_ever)
        if not asked.strip():
            raise UsageError("nothing came from standard input", hint="`-q -` takes the question from there")
        return asked.strip()
    if not question.strip():
        raise UsageError("there is no question to ask", hint='`hermes chat -q "…"` takes it, in quotes')
    brought = "" if os.isatty(descriptor) else read_text(descriptor, _wait_for_a_beginning)
    return join(question, brought) if brought.strip() else question


def join(question: str, brought: str) -> str:
    """The question, and below it in a block of its own what was piped in. The block's mark occurs nowhere else."""
    tag = "stdin"
    while f"</{tag}>" in brought:
        tag += "_"
    return f"{question}\n\n<{tag}>\n{brought.rstrip()}\n</{tag}>"


def read_text(descriptor: int, wait: Callable[[int], bool]) -> str:
    """All that comes, "" when `wait` says that nothing will."""
    if not wait(descriptor):
        return ""
    read = bytearray()
    while chunk := _next_chunk(descriptor):
        read += chunk
        if len(read) > LARGEST:
            size = os.fstat(descriptor).st_size  # what is no file has none
            found = f"{size:,} bytes" if size > LARGEST else f"more than {LARGEST:,} bytes"
            raise UsageError(
                f"standard input brings {found}; {LARGEST:,} are taken with a question",
                hint="Send a part of it, such as `tail -n 500`",
            )
    return _decode(bytes(read))


def _next_chunk(descriptor: int) -> bytes:
    """What comes next, b"" at the end; waited for also where whoever opened it does not want to wait."""
    try:
        return os.read(descriptor, CHUNK)
    except BlockingIOError:
        select.select([descriptor], [], [])
        return _next_chunk(descriptor)
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror}", hint="") from error


def _decode(data: bytes) -> str:
    if b"\0" in data:
        place = data.index(b"\0")
        raise UsageError(f"standard input is not text: byte {place:,} is NUL", hint=TEXT_ALONE)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input is not UTF-8: byte {error.start:,} is 0x{data[error.start]:02x}",
            hint="Convert it first, such as with `iconv -f latin1 -t utf-8`",
        ) from error


def _can_stay_silent(descriptor: int) -> bool:
    """Whether it can be open without anything ever coming: a pipe or a socket. A file and /dev/null come to an end."""
    mode = os.fstat(descriptor).st_mode
    return os.name == "posix" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def _wait_for_ever(descriptor: int) -> bool:
    if os.isatty(descriptor):
        note("Type the question; Ctrl-D on a line of its own ends it.")
    return True


def _wait_for_a_beginning(descriptor: int) -> bool:
    """Wait until something comes or the other side closes. False when the other side may stay silent and does."""
    if not _can_stay_silent(descriptor) or select.select([descriptor], [], [], PATIENCE)[0]:
        return True
    if not may_never_write(descriptor):
        note("hermes: waiting for standard input; `</dev/null` asks without it")
        return True
    note(f"hermes: nothing came from standard input in {PATIENCE:.0f} s: asked without it; `-q -` waits for ever")
    return False


def may_never_write(descriptor: int) -> bool:
    """Whether the other side of a pipe or socket is whoever started us, rather than a program of the same pipeline.

    Told by who holds the end that writes: a shell gives it to the program before us and keeps none; a service, a runner
    and sshd keep it. Where that cannot be seen, a pipe belongs to a pipeline.
    """
    if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return True
    try:
        ours = (PROCESSES / "self" / "fd" / str(descriptor)).readlink()
        process = os.getppid()
        while process > 1 and _link(process, 0) == ours:  # it has only passed on what it was given
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
    """The fourth field; the second, its name, may hold spaces and brackets."""
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
