"""kill -9 at any moment: every acknowledged message is stored once, in order."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.store.store import Store
from tests.db.processes import await_end, hear, say, start
from tests.scale import scale
from tests.store.doomed import IN_ONE_CALL, ROUND, TOGETHER

pytestmark = pytest.mark.processes

SEED = 20_240


def kill(process: subprocess.Popen[str]) -> list[str]:
    """End the process as a power cut would; return the complete lines left in its output."""
    process.send_signal(signal.SIGKILL)
    output, errors = await_end(process)
    assert process.returncode == -signal.SIGKILL
    assert errors == ""
    return [line.rstrip("\n") for line in output.splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.stress
@pytest.mark.timeout(600)
@pytest.mark.contract("P1", "P2", "1.6")
async def test_message_acknowledged_to_a_killed_process_is_there_once_and_in_order(tmp_path: Path) -> None:
    path, chance = tmp_path / "state.db", random.Random(SEED)
    stored: dict[str, list[str]] = {}
    for number in range(scale(5, 200)):
        session_id = f"session-{number}"
        process = start("tests.store.doomed", path, session_id)
        hear(process)
        say(process, "go")
        acknowledged = [hear(process) for _ in range(chance.randrange(1, 60))]
        await asyncio.sleep(chance.uniform(0, 0.004))  # not to wait for anything: the moment of the kill is drawn
        acknowledged += kill(process)
        stored[session_id] = await read_back(path, session_id)
        assert stored[session_id][: len(acknowledged)] == acknowledged
        assert stored[session_id] == [str(n) for n in range(len(stored[session_id]))]
        assert len(stored[session_id]) - len(acknowledged) <= TOGETHER
        assert len(stored[session_id]) % ROUND not in range(ROUND - IN_ONE_CALL + 1, ROUND), "half of one call"
    for session_id, contents in stored.items():
        assert await read_back(path, session_id) == contents


@pytest.mark.stress
@pytest.mark.timeout(600)
@pytest.mark.contract("P1", "1.3")
async def test_file_whose_maker_was_killed_while_making_it_opens(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    for number in range(scale(3, 60)):
        path = tmp_path / f"{number}.db"
        process = start("tests.store.doomed", path, "early")
        hear(process)
        say(process, "go")
        await asyncio.sleep(chance.uniform(0, 0.03))  # not to wait for anything: the moment of the kill is drawn
        kill(process)
        async with await Store.open(path, clock=SystemClock(), lock_timeout=5.0) as store:
            await store.create_session("test", session_id="later")
            assert await store.read(lambda tx: tx.execute("PRAGMA integrity_check").fetchone()[0]) == "ok"


async def read_back(path: Path, session_id: str) -> list[str]:
    """Return a session's messages after the process is gone. Its message count and the file must be intact."""
    async with await Store.open(path, clock=SystemClock(), lock_timeout=5.0) as store:
        assert await store.read(lambda tx: tx.execute("PRAGMA integrity_check").fetchone()[0]) == "ok"
        counted = (await store.read(lambda tx: store.sessions.get(tx, session_id))).message_count
        messages = await store.read(lambda tx: list(store.messages.history(tx, session_id)))
        assert [message.id for message in messages] == sorted({message.id for message in messages})
        assert counted == len(messages)
        return [message.content or "" for message in messages]
