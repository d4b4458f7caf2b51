"""A real memory server in a subprocess."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.plain_http import PLAIN

ROOT = Path(__file__).resolve().parents[2]
DATABASE_URL = "database.url"
"""File with the database URL, in the folder of a server that uses PostgreSQL."""
SECRET = "a secret that only the tests know, long enough for HS256"


@dataclass(frozen=True, slots=True)
class Served:
    """A running server."""

    url: str
    folder: Path
    process: subprocess.Popen[str]

    @property
    def chosen(self) -> tuple[str, str]:
        """Return the options with which owners' commands use the memory of this server."""
        url = self.folder / DATABASE_URL
        return ("--database", url.read_text()) if url.exists() else ("--data", str(self.folder))

    def client(self, key: str | None = None) -> httpx.Client:
        """Return an HTTP client for requests that the SDK does not send."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, verify=PLAIN)


def start(folder: Path, *options: str, **variables: str) -> Served:
    """Start a server on a free port and wait until it answers."""
    if "--database" in options:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / DATABASE_URL).write_text(options[options.index("--database") + 1])
    arguments = ["hermes", "memory", "serve", "--port", "0", "--data", str(folder), *options]
    return start_module(arguments, folder, **variables)


def start_module(arguments: Sequence[str], folder: Path, **variables: str) -> Served:
    """Start a module that serves a folder; its first output line names the address."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AUTH_", "HONCHO_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**clean, "HERMES_HOME": str(folder), "PYTHONPATH": str(ROOT / "src"), **variables},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"http://\S+?:\d+", line)
    assert found, line + process.stderr.read()
    return Served(found.group(), folder, process)


def stop(served: Served) -> str:
    """Stop the server gracefully and return its error output."""
    served.process.terminate()
    with served.process:
        assert served.process.stderr is not None
        return served.process.stderr.read()


def kill(served: Served) -> None:
    """Kill the server."""
    served.process.kill()
    with served.process:
        pass


@contextmanager
def running(folder: Path, *options: str, **variables: str) -> Iterator[Served]:
    """Run a server for the block. Error output fails the test."""
    with ending(start(folder, *options, **variables)) as served:
        yield served


@contextmanager
def ending(served: Served, *, expected: str | None = None) -> Iterator[Served]:
    """Stop a running server after the block. Error output fails the test, except lines that hold `expected`."""
    try:
        yield served
    except BaseException:
        complaints = stop(served)
        sys.stderr.write(complaints)
        raise
    lines = [line for line in stop(served).splitlines() if expected is None or expected not in line]
    assert not lines, "\n".join(lines)


@contextmanager
def inside(served: Served, workspace: str) -> Iterator[httpx.Client]:
    """Yield an HTTP client whose paths are relative to a new workspace."""
    with served.client() as outside:
        outside.post("/v3/workspaces", json={"id": workspace}).raise_for_status()
    with httpx.Client(base_url=f"{served.url}/v3/workspaces/{workspace}", timeout=60, verify=PLAIN) as client:
        yield client
