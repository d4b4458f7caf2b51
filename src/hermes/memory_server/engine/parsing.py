"""Reading uploaded files without letting one of them hold up the server: what may be heavy is read in a process."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
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
        self._places = asyncio.Semaphore(limits.PARSERS)
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
            async with asyncio.timeout(limits.PARSER_WAIT):
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
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", PROGRAM, content_type),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(limits.PARSER_DEADLINE):
                written, _ = await process.communicate(content)
        except TimeoutError:
            return b""
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return written if process.returncode == 0 else b""

    def _tell_of_missing_limits(self) -> None:
        missing = missing_limits()
        if missing is not None and not self._told:
            self._told = True
            log.warning(
                "memory server: this system cannot limit %s of the process that reads a file; it is ended after %g s",
                missing,
                limits.PARSER_DEADLINE,
            )


def _texts(written: bytes) -> list[str]:
    if not written:
        raise Invalid(TOO_MUCH)
    told = json.loads(written)
    if "fault" in told:
        raise getattr(faults, told["fault"])(told["reason"])
    return [str(text) for text in told["texts"]]
