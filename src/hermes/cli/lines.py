"""Standard input, a line at a time, for conversations from a pipe."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

CHUNK = 64 * 1024


async def read_lines(descriptor: int) -> AsyncIterator[str]:
    """The lines of a file descriptor without their ends. Bytes that are no UTF-8 become U+FFFD: one of them must not
    end a conversation. Cancelling it does not wait for the other side."""
    left = b""
    while chunk := await _read_chunk(descriptor):
        *lines, left = (left + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
    if left:
        yield left.decode("utf-8", "replace")


async def _read_chunk(descriptor: int) -> bytes:
    """What comes next; b"" at the end.

    The thread that reads is left behind when we are cancelled: an executor would wait for it, and so would Ctrl-C.
    """
    loop = asyncio.get_running_loop()
    came: asyncio.Future[bytes] = loop.create_future()

    def deliver(chunk: bytes) -> None:
        if not came.done():
            came.set_result(chunk)

    def read() -> None:
        chunk = b""
        with suppress(OSError):  # a terminal that went away: nothing more can come
            chunk = os.read(descriptor, CHUNK)
        with suppress(RuntimeError):  # the loop is over: nobody waits any more
            loop.call_soon_threadsafe(deliver, chunk)

    threading.Thread(target=read, name="hermes-input", daemon=True).start()
    return await came
