"""A scripted OpenAI-compatible server on loopback, over real sockets. It can also run as a program:

    python -m tests.llm.loopback --port 0 --script script.json     # its first line is {"port": N}

The script is {"answers": [...], "then": {...}, "pages": {"/props": {...}}}: each POST gets the next answer, and `then`
when there is none left; each GET gets its page. An answer has the fields of `Answer`, or is
{"says": {...arguments of says()}} or {"fails": {...arguments of fails()}}. GET /_requests gives what was posted so far.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Literal, Self

from hermes.types import Json

Ending = Literal["done", "cut", "reset", "hang", "drop"]
"""How a response ends. `done`: [DONE] and the end of the body. `cut`: the end of the body without it. `reset`: RST.
`hang`: silence. `drop`: the connection is closed before any response."""

POLL_SECONDS = 0.02
"""The interval at which events of other threads are polled."""


@dataclass(frozen=True)
class Answer:
    """One response: `body` unchanged, or `chunks` as events of a stream (text unchanged, all else as JSON). The stream
    waits for each threading.Event among its chunks before it continues."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    chunks: Sequence[Json] = ()
    delay: float = 0.0
    pause: float = 0.0
    ending: Ending = "done"
    echo: bool = False
    until: str = ""
    """A file to wait for before responding."""

    @classmethod
    def from_json(cls, value: Json) -> Answer:
        if "says" in value:
            return says(**value["says"])
        if "fails" in value:
            return fails(**value["fails"])
        return cls(**value)


@dataclass(frozen=True)
class Received:
    """A request as received."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Json


def chunk(delta: Json, finish_reason: str | None = None) -> Json:
    """Return one chunk of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "loop-1", "choices": [choice]}


def says(
    text: str = "",
    *,
    reasoning: str = "",
    calls: Sequence[tuple[str, str]] = (),
    usage: Json = None,
    finish_reason: str | None = None,
    piece: int = 3,
    pause: float = 0.0,
    delay: float = 0.0,
    ending: Ending = "done",
    until: str = "",
) -> Answer:
    """Return a streamed reply: reasoning, text and tool calls (name, arguments) in pieces of `piece` characters."""
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": part} for part in _cut(reasoning, piece)]
    deltas += [{"content": part} for part in _cut(text, piece)]
    for index, (name, _) in enumerate(calls):
        head = {"name": name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": f"call-{index}", "type": "function", "function": head}]})
    # The arguments of parallel calls come interleaved.
    for parts in zip_longest(*(_cut(arguments, piece) for _, arguments in calls)):
        function = [{"index": index, "function": {"arguments": part}} for index, part in enumerate(parts) if part]
        deltas.append({"tool_calls": function})
    chunks = [chunk(delta) for delta in deltas]
    if ending == "done":
        chunks.append(chunk({}, finish_reason or ("tool_calls" if calls else "stop")))
    if usage is not None:
        chunks.append({"model": "loop-1", "choices": [], "usage": usage})
    return Answer(chunks=chunks, pause=pause, delay=delay, ending=ending, until=until)


def fails(status: int, message: str = "", headers: Mapping[str, str] | None = None, **fields: Json) -> Answer:
    """Return an error in OpenAI's format."""
    return Answer(status=status, headers=headers or {}, body=json.dumps({"error": {"message": message, **fields}}))


def _cut(text: str, piece: int) -> list[str]:
    return [text[start : start + piece] for start in range(0, len(text), piece)]


class LoopbackServer:
    """Serves a script inside the block. `requests` lists the requests received."""

    def __init__(
        self,
        answers: Iterable[Answer] = (),
        *,
        then: Answer | None = None,
        pages: Mapping[str, Answer] | None = None,
        port: int = 0,
    ) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self.hung_up = asyncio.Event()
        self.may_answer = threading.Event()
        """POST requests wait for their response while this is not set; any thread may set and clear it."""
        self.may_answer.set()
        self.port = port
        self._answers = iter(answers)
        self._then = then or fails(500, "the script has no further answer")
        self._pages = dict(pages or {})
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    def from_script(cls, script: Json, port: int = 0) -> Self:
        """Create a server from a JSON script as described above."""
        return cls(
            [Answer.from_json(answer) for answer in script.get("answers", [])],
            then=Answer.from_json(script["then"]) if "then" in script else None,
            pages={path: Answer.from_json(page) for path, page in script.get("pages", {}).items()},
            port=port,
        )

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError):
                while await self._exchange(reader, writer):
                    pass
        except ConnectionError:
            self.hung_up.set()
        except asyncio.CancelledError:
            writer.transport.abort()  # a client that does not read must not hold up the end
            raise
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Handle one request. Return True if the connection can take another."""
        received = await _receive(reader)
        if received.method == "POST":
            self.requests.append(received)
            self.asked.set()
        answer = self._choose(received)
        while received.method == "POST" and not self.may_answer.is_set():
            if await self._leaves(reader, POLL_SECONDS):
                return False
        if answer.delay and await self._leaves(reader, answer.delay):
            return False
        while answer.until and not Path(answer.until).exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.05)
        if answer.ending == "drop":
            return False
        if answer.body is not None:
            await _send_whole(writer, answer)
            return True
        await _send_chunks(writer, answer)
        if answer.ending == "reset":
            _reset(writer)
            return False
        if answer.ending == "hang":
            return not await self._leaves(reader, None)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _leaves(self, reader: asyncio.StreamReader, seconds: float | None) -> bool:
        """Return True if the client hangs up within `seconds`."""
        try:
            left = not await asyncio.wait_for(reader.read(1), seconds)
        except TimeoutError:
            return False
        if left:
            self.hung_up.set()
        return left

    def _choose(self, received: Received) -> Answer:
        if received.path == "/_requests":
            return Answer(body=json.dumps([request.body for request in self.requests]))
        if received.method == "GET":
            return self._pages.get(received.path, fails(404, "no such page"))
        answer = next(self._answers, self._then)
        if answer.echo:
            asked = [message["content"] for message in received.body["messages"] if message["role"] == "user"]
            return says(str(asked[-1]), pause=answer.pause, delay=answer.delay, ending=answer.ending)
        return answer


async def _receive(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, json.loads(body) if body else None)


async def _send_whole(writer: asyncio.StreamWriter, answer: Answer) -> None:
    body = (answer.body or "").encode()
    headers = {"Content-Type": "application/json", **answer.headers, "Content-Length": str(len(body))}
    writer.write(_head(answer.status, headers) + body)
    await writer.drain()


async def _send_chunks(writer: asyncio.StreamWriter, answer: Answer) -> None:
    headers = {"Content-Type": "text/event-stream", **answer.headers, "Transfer-Encoding": "chunked"}
    writer.write(_head(answer.status, headers))
    await writer.drain()
    for content in [*answer.chunks, *(["data: [DONE]\n\n"] if answer.ending == "done" else [])]:
        if isinstance(content, threading.Event):
            while not content.is_set():  # noqa: ASYNC110 - another thread sets it
                await asyncio.sleep(POLL_SECONDS)
            continue
        data = (content if isinstance(content, str) else f"data: {json.dumps(content)}\n\n").encode()
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await writer.drain()
        if answer.pause:
            await asyncio.sleep(answer.pause)


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End the connection with RST instead of FIN."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _serve_script(port: int, script: Json) -> None:
    async with LoopbackServer.from_script(script, port) as server:
        sys.stdout.write(json.dumps({"port": server.port}) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible server on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path, required=True)
    arguments = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve_script(arguments.port, json.loads(arguments.script.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
