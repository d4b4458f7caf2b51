"""Runs our program in a home, as a person or a script would."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from hermes.clock import SystemClock
from hermes.store.store import Store

LOCK_SECONDS = 30.0


async def run_ours(home: Path, *arguments: str) -> tuple[int, str]:
    """Run hermes; return its exit code and output."""
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
    """Run one turn from the command line."""
    code, out = await run_ours(home, "chat", "-s", session, "-q", text)
    if code:
        raise RuntimeError(f"{session}: {text}: {out}")


async def run_doctor(home: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the doctor; return its exit code and report."""
    code, out = await run_ours(home, "doctor", "--json", *arguments)
    report: dict[str, Any] = json.loads(out)
    return code, report


async def find_doors(home: Path, chats: list[str]) -> dict[str, list[str]]:
    """Return the sessions of each chat, the current one last, by the key of a person or room, or by the client's id."""
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=LOCK_SECONDS) as store:
        bound = await store.read(store.routes.all)
        ends = {chat: f":group:{chat}" if chat.startswith("#") else f":dm:{chat}" for chat in chats}
        starts = {
            chat: next((session for key, session in bound.items() if key.endswith(end)), chat)
            for chat, end in ends.items()
        }
        return await store.read(lambda tx: {chat: store.sessions.lineage(tx, start) for chat, start in starts.items()})


async def read_everything(home: Path) -> dict[str, list[str]]:
    """Return the people's messages of each session, from an export."""
    _, out = await run_ours(home, "sessions", "export", "--all")
    said: dict[str, list[str]] = {}
    name = ""
    for line in map(json.loads, out.splitlines()):
        if line["type"] == "session":
            name = line["id"]
        elif line["type"] == "message" and line.get("role") == "user":
            said.setdefault(name, []).append(str(line.get("content")))
    return said
