"""Standard input, a line at a time, for conversations from a pipe."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress

CHUNK = 64 * 1024


class InputLines:
    """Lines of a file descriptor. Bytes that are no UTF-8 become U+FFFD: one of them must not end a conversation."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._read = bytearray()
        self._over = False

    async def next(self) -> str | None:
        """The next line without its end; None when there is none. Cancelling it does not wait for the other side."""
        while not self._over and b"\n" not in self._read:
            chunk = await _read_chunk(self._descriptor)
            self._over = not chunk
            self._read += chunk
        if not self._read:
            return None
        line, _, rest = self._read.partition(b"\n")
        self._read = bytearray(rest)
        return line.decode("utf-8", "replace")


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
