"""`hermes web` as a process with the memory server of its home, and a model whose answers a test chooses."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.db.processes import ROOT
from tests.left_behind import end_all
from tests.llm.beside import beside
from tests.llm.loopback import Answer, LoopbackServer, Received, says

TIMEOUT_SECONDS = 60.0


class SaidNext(LoopbackServer):
    """A model that answers with what a test puts into `next`, otherwise with `Understood.`."""

    def __init__(self) -> None:
        super().__init__()
        self.next: deque[Answer] = deque()

    def _choose(self, received: Received) -> Answer:
        if received.method != "POST":
            return super()._choose(received)
        return self.next.popleft() if self.next else says("Understood.")


class WebProcess:
    """A running `hermes web`. It prints one-time links; `link` waits for the newest."""

    def __init__(
        self, home: Path, env: Mapping[str, str], *arguments: str, program: Sequence[str] = ("-m", "hermes")
    ) -> None:
        self.home = home
        self._links: queue.Queue[str] = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments, "web", "--no-open"],
            cwd=ROOT,
            env={**env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.told: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_links, daemon=True),
            threading.Thread(target=self._read_notes, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self._last = self._links.get(timeout=TIMEOUT_SECONDS)
        self.url = self._last.partition("/enter")[0]

    def _read_links(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._links.put(line.strip())

    def _read_notes(self) -> None:
        assert self.process.stderr is not None
        self.told.extend(line.strip() for line in self.process.stderr)

    def take_link(self) -> str:
        """Return the valid link; opening it makes the process print the next one."""
        link = self._last or self._links.get(timeout=TIMEOUT_SECONDS)
        self._last = ""
        return link

    def sign_in(self) -> httpx.Client:
        """Return a client with the cookie."""
        entered = httpx.get(self.take_link(), trust_env=False)
        assert entered.status_code == 303
        return httpx.Client(base_url=self.url, cookies=entered.cookies, trust_env=False, timeout=30)

    def end(self) -> int:
        """Stop the process gracefully; return its exit code."""
        self.process.terminate()
        code = self.process.wait(TIMEOUT_SECONDS)
        for reader in self._readers:
            reader.join(TIMEOUT_SECONDS)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code


def environment(home: Path, model: LoopbackServer | None = None, **more: str) -> dict[str, str]:
    """Return the environment of a machine with only this home, with memory on by default."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "OPENAI_", "HONCHO"))}
    kept |= {"HERMES_AUTO_TITLE": "false", "HERMES_MODEL_TOOLS": "on", "HERMES_MEMORY_SERVER_IDLE": "60"}
    if model is not None:
        kept |= {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-loop-0123456789abcdef"}
        kept |= {"HERMES_MODEL": "loop-1", "HERMES_REVIEW_EVERY": "0"}
    return {**kept, "HERMES_HOME": str(home), "HOME": str(home.parent), "LOGNAME": "ann", **more}


@contextmanager
def serving(
    home: Path,
    model: LoopbackServer | None = None,
    *arguments: str,
    program: Sequence[str] = ("-m", "hermes"),
    **more: str,
) -> Iterator[WebProcess]:
    """Serve a home's page while the block runs; its memory server ends with it. `arguments` are options of `hermes`
    itself, such as `-p`."""
    web = WebProcess(home, environment(home, model, **more), *arguments, program=program)
    try:
        yield web
    finally:
        try:
            assert web.end() == 0, web.told
        finally:
            if web.process.poll() is None:
                web.process.kill()
            end_all(home)


@contextmanager
def talking_model() -> Iterator[SaidNext]:
    with beside(SaidNext()) as model:
        yield model
