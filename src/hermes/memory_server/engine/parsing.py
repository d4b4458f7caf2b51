"""Reading uploaded files without letting one of them hold up the server: what may be heavy is read in a process."""

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
from hermes.memory_server.engine.files import read_file
from hermes.memory_server.engine.parser import TOO_MUCH, missing_limits
from hermes.memory_server.faults import Invalid, TooMany
from hermes.memory_server.threads import compute

log = logging.getLogger(__name__)
LIGHT_JSON = 200_000
"""Bytes of JSON that are parsed before a process has begun."""
PROGRAM = "hermes.memory_server.engine.parser"


class Parsers:
    """A few processes at a time, one for each file, which end with it."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(limits.MAX_PARSERS)
        self._threads = ThreadPoolExecutor(limits.MAX_PARSERS, thread_name_prefix="memory-parsing")
        self._told = False

    async def read(self, content: bytes, content_type: str) -> list[str]:
        """The texts of a file, each small enough for a message, in order."""
        kind = content_type.partition(";")[0].strip().lower()
        heavy = kind == "application/pdf" or (kind == "application/json" and len(content) > LIGHT_JSON)
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
            raise TooMany("The server reads as many files as it can; try again") from None
        try:
            yield
        finally:
            self._places.release()

    async def _run(self, content: bytes, content_type: str) -> bytes:
        """What the process wrote; nothing when it was ended."""
        self._tell_of_missing_limits()
        process = _Process(content_type)
        running = asyncio.get_running_loop().run_in_executor(self._threads, process.run, content)
        try:
            return await asyncio.shield(running)
        finally:
            process.end()
            await asyncio.wait({running})  # its place is free when it has ended

    def _tell_of_missing_limits(self) -> None:
        missing = missing_limits()
        if missing is not None and not self._told:
            self._told = True
            log.warning(
                "memory server: this system cannot limit %s of the process that reads a file; it is ended after %g s",
                missing,
                limits.PARSER_TIMEOUT_SECONDS,
            )


class _Process:
    """A process that reads one file, begun and waited for in a thread: the event loop would stand still until it runs,
    which takes a tenth of a second on a busy machine."""

    def __init__(self, content_type: str) -> None:
        self._command = [sys.executable, "-m", PROGRAM, content_type]
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self, content: bytes) -> bytes:
        """What it wrote; nothing when it was ended."""
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
        """Nobody waits for it any more."""
        self._is_over = True
        if self._process is not None:
            self._process.kill()


def _texts(written: bytes) -> list[str]:
    if not written:
        raise Invalid(TOO_MUCH)
    told = json.loads(written)
    if "fault" in told:
        raise getattr(faults, told["fault"])(told["reason"])
    return [str(text) for text in told["texts"]]
