"""Standard input, a line at a time, for conversations from a pipe."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

CHUNK_BYTES = 64 * 1024


async def read_lines(descriptor: int) -> AsyncIterator[str]:
    """Yield the lines of a file descriptor without line ends. Invalid UTF-8 becomes U+FFFD, so that it does not end a
    conversation. Can be cancelled without waiting for input."""
    left = b""
    while chunk := await _read_chunk(descriptor):
        *lines, left = (left + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
    if left:
        yield left.decode("utf-8", "replace")


async def _read_chunk(descriptor: int) -> bytes:
    """Return the next bytes; b"" at the end.

    On cancellation the reading thread is abandoned: an executor would wait for it, and so would Ctrl-C.
    """
    loop = asyncio.get_running_loop()
    came: asyncio.Future[bytes] = loop.create_future()

    def deliver(chunk: bytes) -> None:
        if not came.done():
            came.set_result(chunk)

    def read() -> None:
        chunk = b""
        with suppress(OSError):  # the terminal was closed
            chunk = os.read(descriptor, CHUNK_BYTES)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(deliver, chunk)

    threading.Thread(target=read, name="hermes-input", daemon=True).start()
    return await came
