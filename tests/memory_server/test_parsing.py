"""Files that make a parser run or grow without end are parsed in a process with limits, which can be killed."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import threading
import zlib
from typing import Any

import pytest

from hermes.memory_server import limits
from hermes.memory_server.engine import parsing
from hermes.memory_server.engine.files import TOO_HEAVY
from hermes.memory_server.engine.parsing import Parsers
from hermes.memory_server.faults import Invalid, TooMany
from tests.memory_server.pdfs import make_pdf

PDF = "application/pdf"
JSON = "application/json"


def endless_pdf(operators: int = 120_000) -> bytes:
    """Return a small file whose only page expands to a hundred thousand operators."""
    drawn = zlib.compress(b"BT /F1 12 Tf " + b"1 0 0 1 10 10 Tm (hi) Tj " * operators + b"ET", 9)
    stream = b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(drawn), drawn)
    plain = make_pdf("x")
    begin = plain.index(b"5 0 obj\n") + len(b"5 0 obj\n")
    return plain[:begin] + stream + plain[plain.index(b"\nendobj", begin) :]


class Watched(list[subprocess.Popen[bytes]]):
    """The processes that were started."""

    def __init__(self) -> None:
        super().__init__()
        self.one = threading.Event()


@pytest.fixture
def started(processes: None, monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched()
    monkeypatch.setattr(limits, "PARSER_TIMEOUT_SECONDS", 200.0)  # a busy machine does not use it up

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            watched.append(self)
            watched.one.set()

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    return watched


async def test_pdf_that_takes_too_long_is_refused_and_its_process_ended(
    started: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PARSER_TIMEOUT_SECONDS", 1.0)
    pdf = endless_pdf()
    assert len(pdf) < 200_000
    with pytest.raises(Invalid, match=TOO_HEAVY):
        await Parsers().read(pdf, PDF)
    assert [process.returncode for process in started] == [-9]


async def test_file_that_takes_too_much_memory_is_refused(started: Watched) -> None:
    with pytest.raises(Invalid, match=TOO_HEAVY):
        await Parsers().read(b"[" + b"[[[[]]]]," * 500_000 + b"[]]", JSON)
    assert [process.returncode for process in started] == [0]


async def test_process_of_an_upload_that_nobody_waits_for_is_ended(started: Watched) -> None:
    parsers = Parsers()
    reading = asyncio.create_task(parsers.read(endless_pdf(), PDF))
    assert await asyncio.to_thread(started.one.wait, 60)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert [process.returncode for process in started] == [-9]
    assert await parsers.read(make_pdf("still here"), PDF) == ["[Page 1]\nstill here"]


async def test_file_waits_for_its_turn_only_so_long(started: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PARSER_WAIT_SECONDS", 0.2)
    parsers = Parsers()
    reading = [asyncio.create_task(parsers.read(endless_pdf(), PDF)) for _ in range(limits.MAX_PARSERS)]
    await asyncio.sleep(0)  # they have their places
    with pytest.raises(TooMany):
        await parsers.read(make_pdf("x"), PDF)
    assert await parsers.read(b"a text", "text/plain") == ["a text"], "texts need no process"
    for task in reading:
        task.cancel()
    await asyncio.wait(reading)
    assert len(started) == limits.MAX_PARSERS


async def test_limit_that_the_system_does_not_have_is_said_once(
    started: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parsing, "missing_limits", lambda: "the memory")
    parsers = Parsers()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert await parsers.read(make_pdf("hi"), PDF) == ["[Page 1]\nhi"]
    assert [record.getMessage() for record in caplog.records] == [
        "memory server: this system cannot limit the memory of the process that reads a file; it is ended after 200 s"
    ]
    assert len(started) == 2
