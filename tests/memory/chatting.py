"""Runs `hermes chat` in a process, with a scripted model on loopback."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.llm.loopback import LoopbackServer

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Chatted:
    """The output and exit code of the process."""

    code: int
    out: str
    err: str


async def chat(
    home: Path, server: LoopbackServer | None, *arguments: str, lines: str = "", path: Path | None = None
) -> Chatted:
    """Run `hermes ARGUMENTS`, with `lines` on standard input, and `path` first among the folders Python searches."""
    home.mkdir(parents=True, exist_ok=True)
    searched = [*([str(path)] if path else []), *sys.path]
    env = {**os.environ, "HERMES_HOME": str(home), "PYTHONPATH": os.pathsep.join(filter(None, searched))}
    env |= {"OPENAI_BASE_URL": server.base_url, "HERMES_MODEL": "loop-1"} if server else {"OPENAI_BASE_URL": ""}
    env.pop("OPENAI_API_KEY", None)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hermes", *arguments),
        cwd=ROOT,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(lines.encode())
    assert process.returncode is not None
    return Chatted(process.returncode, out.decode(), err.decode())
