"""A log that many processes write and rotate: every line is there once, whole, and in its writer's order."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes.audit.log import log_files
from hermes.errors import HomeError
from hermes.files import locked
from hermes.logs import TAIL_BYTES, LogFile, read_warnings, start_log
from tests.db.processes import await_end, finish, hear, say, start
from tests.scale import scale

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX files")
LINE = re.compile(r"(w\d+) (\d+) (x{60}|x{20000})\.")
LARGEST = 100_000
Open = Callable[..., logging.Logger]


@pytest.fixture
def logger() -> Iterator[Open]:
    """Opens a logger on a file: `logger(path, largest=…, kept=…)`."""
    made: list[LogFile] = []

    def open_log(path: Path, *, largest: int = LARGEST, kept: int = 3) -> logging.Logger:
        made.append(LogFile(path, largest=largest, kept=kept))
        log = logging.Logger(f"log-{len(made)}")
        log.addHandler(made[-1])
        return log

    yield open_log
    for handler in made:
        handler.close()


def lines_of(path: Path) -> list[str]:
    """Return all lines of a log, oldest first."""
    return [line for file in log_files(path) for line in file.read_text().splitlines()]


def read_numbers(path: Path) -> dict[str, list[int]]:
    """Return the lines of each writer, in the order of the log. An incomplete line fails."""
    found: dict[str, list[int]] = {}
    for line in lines_of(path):
        match = LINE.fullmatch(line)
        assert match, f"a torn line: {line[:200]}"
        found.setdefault(match[1], []).append(int(match[2]))
    return found


@pytest.mark.processes
@pytest.mark.stress
@pytest.mark.contract("1.6")
def test_processes_that_write_and_rotate_at_once_lose_and_tear_no_line(tmp_path: Path) -> None:
    path, count = tmp_path / "agent.log", scale(600, 20_000)
    names = [f"w{number}" for number in range(6)]
    writers = [start("tests.log_writer", path, name, count, LARGEST, 10_000) for name in names]
    for writer in writers:
        assert hear(writer) == "ready"
    for writer in writers:
        say(writer, "go")
    for writer in writers:
        finish(writer)
    assert read_numbers(path) == {name: list(range(count)) for name in names}
    *rotated, _ = log_files(path)
    assert len(rotated) > 3
    assert all(file.stat().st_size > LARGEST - 21_000 for file in rotated), "a file was rotated before it was full"


@pytest.mark.processes
@posix
def test_a_writer_killed_while_rotating_holds_up_nobody(tmp_path: Path) -> None:
    path, count = tmp_path / "agent.log", 3_000
    doomed = start("tests.log_writer", path, "w0", 10**9, 20_000, 10_000)
    writer = start("tests.log_writer", path, "w1", count, 20_000, 10_000)
    for process in (doomed, writer):
        hear(process)
        say(process, "go")
    said = [hear(doomed) for _ in range(5)]
    doomed.kill()
    await_end(doomed)
    finish(writer)
    found = read_numbers(path)
    assert found["w1"] == list(range(count))
    assert found["w0"] == list(range(len(found["w0"])))
    assert len(found["w0"]) > int(said[-1])


def test_only_so_many_files_are_kept_and_none_grows_beyond_its_size(tmp_path: Path, logger: Open) -> None:
    path = tmp_path / "logs" / "agent.log"
    log = logger(path, largest=1_000, kept=2)
    for number in range(100):
        log.warning("%04d %s", number, "x" * 90)
    assert [file.name for file in log_files(path)] == ["agent.log.2", "agent.log.1", "agent.log"]
    assert all(file.stat().st_size <= 1_000 for file in log_files(path))
    assert [int(line[:4]) for line in lines_of(path)] == list(range(100 - len(lines_of(path)), 100))


@posix
def test_a_log_that_was_moved_or_removed_is_begun_anew(tmp_path: Path, logger: Open) -> None:
    path = tmp_path / "logs" / "agent.log"
    log = logger(path)
    log.warning("one")
    path.rename(tmp_path / "moved")
    log.warning("two")
    path.unlink()
    path.parent.rmdir()
    log.warning("three")
    assert (tmp_path / "moved").read_text() == "one\n"
    assert path.read_text() == "three\n"
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.timeout(30)
def test_rotation_by_another_process_is_not_waited_for(tmp_path: Path, logger: Open) -> None:
    path = tmp_path / "agent.log"
    log = logger(path, largest=100)
    log.warning("x" * 90)
    with locked(path):
        for _ in range(20):
            log.warning("y" * 90)
    assert len(lines_of(path)) == 21
    assert log_files(path) == [path]
    log.warning("z")
    assert [file.name for file in log_files(path)] == ["agent.log.1", "agent.log"]


@posix
def test_write_failures_and_their_end_are_reported_once(
    tmp_path: Path, logger: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "agent.log"
    log = logger(path)
    path.unlink()
    path.mkdir()
    for _ in range(3):
        log.warning("lost")
    assert capsys.readouterr().err == f"hermes: cannot write the log {path}: Is a directory\n"
    path.rmdir()
    for _ in range(3):
        log.warning("kept")
    assert capsys.readouterr().err == f"hermes: the log {path} is written again\n"
    assert path.read_text().split() == ["kept"] * 3


@posix
def test_pipe_or_folder_in_place_of_the_log_is_reported_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "agent.log")
    with pytest.raises(HomeError, match=r"cannot write the log .*: it is a pipe that nobody reads"):
        start_log(tmp_path / "agent.log")
    (tmp_path / "folder").mkdir()
    with pytest.raises(HomeError, match=r"cannot write the log .*: Is a directory"):
        start_log(tmp_path / "folder")


@posix
def test_a_log_that_leads_to_a_device_is_written_and_never_rotated(tmp_path: Path, logger: Open) -> None:
    (tmp_path / "agent.log").symlink_to("/dev/null")
    log = logger(tmp_path / "agent.log", largest=10)
    for _ in range(5):
        log.warning("much too long")
    assert (tmp_path / "agent.log").is_symlink()
    assert [path.name for path in tmp_path.iterdir()] == ["agent.log"]


@pytest.mark.contract("10.76")
@pytest.mark.parametrize("form", ["text", "json"])
def test_last_warnings_of_a_log_are_read_from_its_end(tmp_path: Path, form: str) -> None:
    path = tmp_path / "agent.log"
    start_log(path, form=form, secrets=["hunter2-secret"])
    log = logging.getLogger("hermes.test")
    log.warning("first")
    log.info("y" * TAIL_BYTES)
    log.warning("second, with hunter2-secret")
    try:
        raise ValueError("third\nline")
    except ValueError:
        log.exception("third")
    found = read_warnings(path, 5)
    assert [(one.level, one.logger) for one in found] == [("ERROR", "hermes.test"), ("WARNING", "hermes.test")]
    assert "hunter2" not in found[1].message
    assert [one.message for one in read_warnings(path, 1)] == ["third"]
    assert read_warnings(tmp_path / "none.log", 5) == []
    assert read_warnings(tmp_path, 5) == []
