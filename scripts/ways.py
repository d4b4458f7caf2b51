"""Ways of data to trace, each as a command of hermes with its input."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import TextIO

from scripts.tracer import Tracer, Walk

TIMEOUT_SECONDS = 60.0
LONG = "I collect stamps from Malta and sometimes from Gozo, and I would like to know more about them. " * 20


@dataclass(frozen=True)
class Terminal:
    """The standard input and output of this process, used by one of its threads."""

    typed: int
    shown: TextIO
    errors: TextIO
    """The original standard error."""

    @classmethod
    def attach(cls) -> Terminal:
        errors = os.fdopen(os.dup(2), "w", encoding="utf-8")
        read_in, write_in = os.pipe()
        read_out, write_out = os.pipe()
        for source, target in ((read_in, 0), (write_out, 1), (write_out, 2)):
            os.dup2(source, target)
        return cls(write_in, os.fdopen(read_out, encoding="utf-8"), errors)

    def say(self, line: str, answer: str) -> None:
        """Type a line and wait for an output line with `answer`."""
        os.write(self.typed, f"{line}\n".encode())
        self.wait_for(answer)

    def wait_for(self, text: str) -> str:
        for line in self.shown:
            if text in line:
                return line
        raise EOFError(f"{text!r} was never said")


Drive = Callable[[Terminal, Tracer], Walk]
"""Drives the traced process from a thread."""


def warm_turn(terminal: Terminal, tracer: Tracer) -> Walk:
    """Trace the second turn of a chat; a third one follows, so that the second is complete."""
    terminal.say("hello", "stamps")
    tracer.begin()
    terminal.say("and now?", "stamps")
    terminal.say("and then?", "stamps")
    return tracer.end()


def compression(terminal: Terminal, tracer: Tracer) -> Walk:
    for _ in range(8):
        terminal.say(LONG, "stamps")
    tracer.begin()
    terminal.say("/compress", "Compressed")
    return tracer.end()


def http_message(terminal: Terminal, tracer: Tracer) -> Walk:
    """Trace the same through the HTTP API of a gateway."""
    terminal.wait_for("gateway: api")
    post = _client(int(os.environ["API_SERVER_PORT"]))

    def say(text: str) -> None:
        post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]}, {"X-Hermes-Session-Id": "walk"})

    say("hello")
    tracer.begin()
    say("and now?")
    say("and then?")
    return tracer.end()


def posted_messages(terminal: Terminal, tracer: Tracer) -> Walk:
    post = _filled_server(terminal)
    tracer.begin()
    _post_messages(post)
    return tracer.end()


def search(terminal: Terminal, tracer: Tracer) -> Walk:
    post = _filled_server(terminal)
    asked = {"query": "stamps from Malta"}
    post("/v3/workspaces/w/search", asked)
    tracer.begin()
    post("/v3/workspaces/w/search", asked)
    return tracer.end()


Post = Callable[..., None]


def _filled_server(terminal: Terminal) -> Post:
    found = re.search(r"http://[\d.]+:(\d+)", terminal.wait_for("http://"))
    assert found is not None
    post = _client(int(found[1]))
    post("/v3/workspaces", {"id": "w"})
    post("/v3/workspaces/w/peers", {"id": "ada"})
    post("/v3/workspaces/w/sessions", {"id": "s", "peers": {"ada": {}}})
    _post_messages(post)
    return post


def _post_messages(post: Post) -> None:
    said = [{"peer_id": "ada", "content": text} for text in ("I collect stamps from Malta.", "And from Gozo.")]
    post("/v3/workspaces/w/sessions/s/messages", {"messages": said})


def _client(port: int) -> Post:
    """Return a client of a server that listens, or soon will."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    until = time.monotonic() + TIMEOUT_SECONDS
    while connection.sock is None:
        try:
            connection.connect()
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)

    def post(path: str, body: object, headers: dict[str, str] | None = None) -> None:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise ConnectionError(f"{path}: {answer.status} {text[:500]!r}")

    return post


@dataclass(frozen=True)
class Way:
    """A command with its input. Without `drive` the whole process is traced."""

    name: str
    command: tuple[str, ...]
    drive: Drive | None = None
    provider: str = "none"
    """The memory provider. `honcho` uses the embedded server, as people have it: a process beside the traced one."""


WAYS = (
    Way("chat -q", ("chat", "-q", "hello")),
    Way("warm turn", ("chat",), warm_turn),
    Way("HTTP message", ("gateway", "run"), http_message),
    Way("chat -q with memory", ("chat", "-q", "hello"), provider="honcho"),
    Way("warm turn with memory", ("chat",), warm_turn, provider="honcho"),
    Way("HTTP message with memory", ("gateway", "run"), http_message, provider="honcho"),
    Way("compression", ("chat",), compression),
    Way("POST messages", ("memory", "serve", "--port", "0", "--no-worker"), posted_messages),
    Way("search", ("memory", "serve", "--port", "0", "--no-worker"), search),
)
