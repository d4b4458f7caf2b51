"""A Honcho server without our extensions: only the public routes, and idempotency keys are ignored.

`python -m tests.transfer.plain_honcho FOLDER` serves it and prints its address.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from hermes.clock import SystemClock
from hermes.memory_server.api.app import create_app
from hermes.memory_server.api.server import Options
from hermes.memory_server.db.schema import open_database, open_for_work
from hermes.memory_server.engine.word_vectors import WordVectors

OURS = b"idempotency-key"


class Forgetful:
    """Drops headers and fields that only our server understands."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["headers"] = [(name, value) for name, value in scope["headers"] if name != OURS]
            if "/ext/" in scope["path"] or scope["path"] == "/health":
                scope["path"] = "/nowhere"
        await self._app(scope, receive, send)


def serve(folder: Path) -> None:
    """Serve until it is ended."""
    built = create_app(
        lambda: open_database(folder),
        clock=SystemClock(),
        options=Options(),
        embedder=WordVectors(),
        open_for_work=lambda: open_for_work(folder),
    )
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stderr.write(f"http://127.0.0.1:{listener.getsockname()[1]} \n")
    sys.stderr.flush()
    config = uvicorn.Config(Forgetful(built), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
