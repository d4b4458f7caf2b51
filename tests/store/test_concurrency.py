"""Many processes, one file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.store.store import Store
from tests.db.processes import finish, hear, say, start
from tests.scale import scale
from tests.store.appender import OWN_SESSIONS, SHARED, session_of
from tests.store.onlooker import check_order

pytestmark = pytest.mark.processes


@pytest.mark.stress
@pytest.mark.timeout(600)
@pytest.mark.contract("1.6", "P1")
async def test_many_processes_append_to_one_file_and_nothing_is_lost_or_locked(tmp_path: Path) -> None:
    path, count = tmp_path / "state.db", scale(30, 500)
    writers = [f"w{number}" for number in range(scale(5, 13))]
    async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:
        await store.create_session("test", session_id=SHARED)

    processes = [start("tests.store.appender", path, writer, count) for writer in writers]
    onlookers = [start("tests.store.onlooker", path, role) for role in ("read", "examine")]
    for process in processes:
        assert hear(process) == "ready"
    for process in processes:
        say(process, "go")
    assert [int(finish(process)) for process in processes] == [count] * len(writers)
    assert all(int(finish(onlooker)) > 0 for onlooker in onlookers)

    async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:
        assert await contents(store, SHARED) == Counter(
            f"{writer} {n}" for writer in writers for n in range(count) if session_of(writer, n) == SHARED
        )
        check_order(await ordered(store, SHARED))
        for writer in writers:
            for session in (f"{writer}-{number}" for number in range(OWN_SESSIONS)):
                expected = [f"{writer} {n}" for n in range(count) if session_of(writer, n) == session]
                assert await ordered(store, session) == expected
        assert await store.read(lambda tx: tx.execute("PRAGMA integrity_check").fetchone()[0]) == "ok"


async def ordered(store: Store, session_id: str) -> list[str]:
    """A session's messages, first to last; its running count must fit."""
    found = await store.read(lambda tx: [m.content or "" for m in store.messages.history(tx, session_id)])
    session = await store.read(lambda tx: store.sessions.get(tx, session_id))
    assert session.message_count == len(found)
    return found


async def contents(store: Store, session_id: str) -> Counter[str]:
    return Counter(await ordered(store, session_id))
