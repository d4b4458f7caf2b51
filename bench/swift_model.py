"""A model process that answers at once and records when each request arrived. Its first line is `{"port": N}`.

GET / gives the arrivals so far: the last line of the last user message of each request with the moment it was read, on
the machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress

CHUNKS = "".join(
    f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': reason}]})}\n\n"
    for delta, reason in (({"role": "assistant", "content": "Noted."}, None), ({}, "stop"))
)
REPLY = (CHUNKS + "data: [DONE]\n\n").encode()
HEAD = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(REPLY)}\r\n\r\n".encode()


class SwiftModel:
    """Serves one kind of answer."""

    def __init__(self) -> None:
        self._arrivals: dict[str, float] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = head.partition("content-length:")[2].partition("\r\n")[0]
                body = await reader.readexactly(int(length or 0))
                writer.write(self._answer(body))
                await writer.drain()
        writer.close()

    def _answer(self, body: bytes) -> bytes:
        if body:
            arrived = time.monotonic()
            said = json.loads(body)["messages"][-1]["content"]
            self._arrivals[said.rpartition("\n")[2]] = arrived
            return HEAD + REPLY
        told = json.dumps(self._arrivals).encode()
        return f"HTTP/1.1 200 OK\r\nContent-Length: {len(told)}\r\n\r\n".encode() + told


async def main() -> None:
    server = await asyncio.start_server(SwiftModel().serve, "127.0.0.1", 0, limit=2**26)
    sys.stdout.write(json.dumps({"port": server.sockets[0].getsockname()[1]}) + "\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
