"""Reading of uploaded files outside the server's process, so that a heavy file does not block it."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from hermes.memory_server import faults, limits
from hermes.memory_server.engine.files import TOO_HEAVY, missing_limits, read_file
from hermes.memory_server.faults import Invalid, TooMany
from hermes.memory_server.threads import compute

log = logging.getLogger(__name__)
MAX_INLINE_JSON_BYTES = 200_000
"""Larger JSON files are parsed in a process; smaller ones take less time than starting it."""
PROGRAM = "hermes.memory_server.engine.files"


class Parsers:
    """A bounded number of processes, one for each file."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(limits.MAX_PARSERS)
        self._threads = ThreadPoolExecutor(limits.MAX_PARSERS, thread_name_prefix="memory-parsing")
        self._has_warned = False

    async def read(self, content: bytes, content_type: str) -> list[str]:
        """Return the texts of a file in order, each small enough for a message."""
        kind = content_type.partition(";")[0].strip().lower()
        heavy = kind == "application/pdf" or (kind == "application/json" and len(content) > MAX_INLINE_JSON_BYTES)
        if not heavy:
            return await compute(read_file, content, content_type)
        async with self._place():
            return _texts(await self._run(content, content_type))

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(limits.PARSER_WAIT_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            raise TooMany("The server is reading as many files as it can at a time; try again later") from None
        try:
            yield
        finally:
            self._places.release()

    async def _run(self, content: bytes, content_type: str) -> bytes:
        """Return the output of the process; empty if it was killed or failed."""
        self._warn_of_missing_limits()
        process = _Process(content_type)
        running = asyncio.get_running_loop().run_in_executor(self._threads, process.run, content)
        try:
            return await asyncio.shield(running)
        finally:
            process.end()
            await asyncio.wait({running})  # its slot is free once it has ended

    def _warn_of_missing_limits(self) -> None:
        missing = missing_limits()
        if missing is not None and not self._has_warned:
            self._has_warned = True
            log.warning(
                "memory server: this system cannot limit %s of the process that reads a file; it is ended after %g s",
                missing,
                limits.PARSER_TIMEOUT_SECONDS,
            )


class _Process:
    """A process that reads one file, started and awaited in a thread: starting it takes a tenth of a second on a busy
    machine, during which the event loop would stand still.
    """

    def __init__(self, content_type: str) -> None:
        self._command = [sys.executable, "-m", PROGRAM, content_type]
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self, content: bytes) -> bytes:
        """Return the output of the process; empty if it was killed or failed."""
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=nowhere) as process:
            self._process = process
            if self._is_over:
                process.kill()
            try:
                written, _ = process.communicate(content, timeout=limits.PARSER_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                return b""
        return written if process.returncode == 0 else b""

    def end(self) -> None:
        """Kill the process if it still runs."""
        self._is_over = True
        if self._process is not None:
            self._process.kill()


def _texts(written: bytes) -> list[str]:
    if not written:
        raise Invalid(TOO_HEAVY)
    result = json.loads(written)
    if "fault" in result:
        raise getattr(faults, result["fault"])(result["reason"])
    return [str(text) for text in result["texts"]]
