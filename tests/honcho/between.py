"""A proxy in front of a memory server that counts requests and can answer in the server's place."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.plain_http import PLAIN


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    body: Any
    authorization: str | None = None

    @property
    def what(self) -> str:
        """The last segment of the path: `chat`, `context`, `card`, …"""
        return urlsplit(self.path).path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Instead:
    """A response given in the server's place. One that hangs is sent when `go_on` is set, or never."""

    body: Any = None
    status: int = 200
    hang: bool = False
    cut_off: bool = False


Rule = Callable[[Asked], Instead | None]


class Between:
    """A proxy on loopback. Requests that `rule` answers are not forwarded."""

    def __init__(self, behind: str) -> None:
        self._behind = httpx.Client(base_url=behind, timeout=60, verify=PLAIN)
        self.asked: list[Asked] = []
        self.answered: list[Asked] = []
        """The requests that the real server has answered."""
        self.rule: Rule = lambda _: None
        self.go_on = threading.Event()
        between = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                between._answer(self)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def count(self, what: str) -> int:
        """Return the number of requests whose path ends with this."""
        return Counter(asked.what for asked in self.asked)[what]

    def bodies(self, what: str) -> list[Any]:
        return [asked.body for asked in self.asked if asked.what == what]

    def __enter__(self) -> Between:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._behind.close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        content = handler.rfile.read(length)
        body, authorization = json.loads(content) if content else None, handler.headers.get("Authorization")
        asked = Asked(handler.command, handler.path, body, authorization)
        self.asked.append(asked)
        instead = self.rule(asked)
        if instead is None:
            kept = {"Content-Type", "Authorization"}
            headers = {name: value for name, value in handler.headers.items() if name in kept}
            found = self._behind.request(handler.command, handler.path, content=content, headers=headers)
            self._send(handler, found.status_code, found.content)
            self.answered.append(asked)
            return
        if instead.hang:
            self.go_on.wait()
        if instead.cut_off:
            handler.close_connection = True
            return
        raw = instead.body if isinstance(instead.body, bytes) else json.dumps(instead.body).encode()
        self._send(handler, instead.status, raw)

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        try:
            handler.send_response(status)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
        except OSError:
            handler.close_connection = True  # nobody waits any more


def like_a_model(*answers: str | None) -> Rule:
    """Return a rule for a server that is not ours: its chat endpoint gives these answers in order, the last one
    repeatedly."""
    left = list(answers)

    def rule(asked: Asked) -> Instead | None:
        if asked.what == "health":
            return Instead({"status": "ok"})
        if asked.what == "chat":
            return Instead({"content": left.pop(0) if len(left) > 1 else left[0]})
        return None

    return rule


def until_it_is_so(look: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for an effect of another thread."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end
        time.sleep(0.01)
