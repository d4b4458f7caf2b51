"""Our own program in a home, as a person or a script would start it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from hermes.clock import SystemClock
from hermes.store.store import Store

LOCK = 30.0


async def run_ours(home: Path, *arguments: str) -> tuple[int, str]:
    """Its exit code and what it printed."""
    env = {**os.environ, "HERMES_HOME": str(home), "HERMES_MEMORY_PROVIDER": "none"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hermes", *arguments, env=env, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await process.communicate()
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{arguments}: {out.decode()} {errors.decode()}")
    return process.returncode, out.decode()


async def ask_ours(home: Path, session: str, text: str) -> None:
    """One turn from the command line."""
    code, out = await run_ours(home, "chat", "-s", session, "-q", text)
    if code:
        raise RuntimeError(f"{session}: {text}: {out}")


async def run_doctor(home: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Its exit code and its report."""
    code, out = await run_ours(home, "doctor", "--json", *arguments)
    report: dict[str, Any] = json.loads(out)
    return code, report


async def find_doors(home: Path, chats: list[str]) -> dict[str, list[str]]:
    """The sessions of each chat, the one in which it goes on last: of a person's or a room's key, or of the id that a
    client uses."""
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=LOCK) as store:
        bound = await store.read(store.routes.all)
        ends = {chat: f":group:{chat}" if chat.startswith("#") else f":dm:{chat}" for chat in chats}
        starts = {
            chat: next((session for key, session in bound.items() if key.endswith(end)), chat)
            for chat, end in ends.items()
        }
        return await store.read(lambda tx: {chat: store.sessions.lineage(tx, start) for chat, start in starts.items()})


async def read_everything(home: Path) -> dict[str, list[str]]:
    """What people said in each session, as an export has it."""
    _, out = await run_ours(home, "sessions", "export", "--all")
    said: dict[str, list[str]] = {}
    name = ""
    for line in map(json.loads, out.splitlines()):
        if line["type"] == "session":
            name = line["id"]
        elif line["type"] == "message" and line.get("role") == "user":
            said.setdefault(name, []).append(str(line.get("content")))
    return said
