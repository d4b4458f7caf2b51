"""Second embedders for tests: one in this process, and an endpoint on loopback that can be made to fail."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from hermes.memory_server.embedder import Space, Vector

DIMENSION = 16


def towards(text: str, favourite: str) -> list[float]:
    """Return one direction for questions and texts with the favourite word, another one for all other texts."""
    near = favourite in text or text.rstrip().endswith("?")
    return [1.0 if place == (0 if near else 1) else 0.0 for place in range(DIMENSION)]


class FavouriteWordEmbedder:
    """An embedder that places questions near texts with its favourite word. It can be paused after some texts."""

    def __init__(self, name: str, favourite: str, most: int | None = None) -> None:
        self.space = Space(name, DIMENSION)
        self.favourite = favourite
        self.texts = 0
        self._most = most
        self.is_held = asyncio.Event()
        """Set when the embedder has paused."""
        self.goes_on = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return the vector of each text. Questions are never paused."""
        if not all(text.rstrip().endswith("?") for text in texts):
            if self._most is not None and self.texts >= self._most and not self.goes_on.is_set():
                self.is_held.set()
                await self.goes_on.wait()
            self.texts += len(texts)
        return [np.array(towards(text, self.favourite), dtype=np.float32) for text in texts]


Answer = Callable[[Sequence[str]], tuple[int, Any]]


def vectors(rows: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return a response of OpenAI's form, with the rows in reverse order."""
    return {"data": [{"index": n, "embedding": row} for n, row in reversed([*enumerate(rows)])]}


def in_favour_of(favourite: str) -> Answer:
    """Return the answers of a working endpoint."""
    return lambda texts: (200, vectors([towards(text, favourite) for text in texts]))


class Endpoint:
    """An endpoint with its answer, recording the requests it received."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[list[str]] = []
        self.keys: set[str | None] = set()
        self.paths: set[str] = set()
        self.url = ""


@contextmanager
def endpoint(answer: Answer) -> Iterator[Endpoint]:
    """Run an endpoint for the block."""
    told = Endpoint(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.asked.append(body["input"])
            told.keys.add(self.headers.get("Authorization"))
            told.paths.add(self.path)
            status, said = told.answer(body["input"])
            content = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
