"""Run `hermes chat` as a process, with a scripted model endpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hermes.types import Json
from tests.conftest import Ran
from tests.db.processes import ROOT
from tests.llm.beside import beside
from tests.llm.loopback import LoopbackServer

KEY = "sk-loop-0123456789abcdef"
ENDINGS = ("Replied", "Stopped", "Failed")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running scripted endpoint."""

    server: LoopbackServer

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def base_url(self) -> str:
        return self.server.base_url

    def requests(self) -> list[Json]:
        """Return the request bodies received so far."""
        return [request.body for request in list(self.server.requests)]


@contextmanager
def serving(answers: Sequence[Json], **more: Json) -> Iterator[Endpoint]:
    """Serve a script (see tests/llm/loopback.py) while the block runs."""
    with beside(LoopbackServer.from_script({"answers": answers, **more})) as server:
        yield Endpoint(server)


def environment(home: Path, base_url: str | None = None, **more: str) -> dict[str, str]:
    """Return an environment with only this home, and maybe an endpoint. Memory is off unless config.yaml says
    otherwise, titles are off, and tools are offered to the model."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "OPENAI_"))}
    kept |= {
        "HERMES_MEMORY_PROVIDER": "none",
        "HERMES_AUTO_TITLE": "false",
        "HERMES_MODEL_TOOLS": "on",
        "HERMES_OWNER_NAME": "",
    }
    endpoint = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": KEY, "HERMES_MODEL": "loop-1"} if base_url else {}
    return {**kept, "HERMES_HOME": str(home), **endpoint, **more}


def start_chat(env: Mapping[str, str], *arguments: str) -> subprocess.Popen[str]:
    """Start `hermes chat` with pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "hermes", "chat", *arguments],
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def chat(env: Mapping[str, str], *arguments: str, said: str | bytes = "", timeout: float = 120) -> Ran:
    """Run `hermes chat` to its end. Without `said`, standard input is empty: an open pipe would delay a question."""
    given = said.encode() if isinstance(said, str) else said
    done = subprocess.run(
        [sys.executable, "-m", "hermes", "chat", *arguments],
        cwd=ROOT,
        env=env,
        input=given or None,
        stdin=None if given else subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def events(output: str) -> list[Json]:
    """Parse the events of `--json`; a kill may cut off the last line."""
    return [json.loads(line) for line in output.splitlines(keepends=True) if line.endswith("\n")]


def turns(output: str) -> list[list[Json]]:
    """Group the events of `--json` by turn. Each turn has one ending, its last event; a single question ends with
    `Ended`."""
    split: list[list[Json]] = [[]]
    for event in [event for event in events(output) if event["type"] != "Ended"]:
        split[-1].append(event)
        if event["type"] in ENDINGS:
            split.append([])
    assert split.pop() == [], "the last turn has no ending"
    return split


def configure(home: Path, text: str) -> None:
    """Write config.yaml."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(text)
