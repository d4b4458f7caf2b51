"""The log of a compression: two lines, one session, whatever happens around and inside it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from hermes.errors import UsageError
from hermes.logs import SESSION, operation
from hermes.store.store import Store
from hermes.types import Message
from tests.compression.checks import check_lines, check_one_at_a_time
from tests.compression.conftest import ReadLog
from tests.compression.conversations import make_compressor, slow_summariser, summariser, talked

log = logging.getLogger("hermes.test")


def brackets(path: Path, text: str) -> set[str]:
    """Return the brackets of all lines that contain `text`."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if text in line]
    assert lines
    return {line.split("[", 1)[1].split("]", 1)[0] for line in lines}


@pytest.mark.contract("3.9")
async def test_code_inside_an_operation_logs_under_its_session(store: Store, log_file: Path, read_log: ReadLog) -> None:
    session_id, other = await talked(store), await talked(store)

    async def meddle(_: Sequence[Message]) -> None:
        SESSION.set(other)
        log.info("inside")
        await asyncio.create_task(asyncio.to_thread(log.info, "inside, in a thread"))
        child = asyncio.create_task(later())
        await child

    async def later() -> None:
        await asyncio.sleep(0)
        SESSION.set(other)
        log.info("inside, in a task")

    result = await make_compressor(store, summariser(), last_look=meddle).compress(session_id)
    assert result.outcome == "done"
    assert brackets(log_file, "inside") == {session_id}
    assert check_lines(read_log()) == []
    log.info("outside")
    assert brackets(log_file, "outside") == {"-"}


@pytest.mark.contract("3.9")
async def test_operation_on_another_session_is_refused_inside_one(store: Store, read_log: ReadLog) -> None:
    session_id, other = await talked(store), await talked(store)
    compressor = make_compressor(store, summariser())
    with operation(session_id):
        with pytest.raises(UsageError, match=f"{session_id} cannot work on session {other}"):
            await compressor.compress(other)
        with pytest.raises(UsageError):
            await asyncio.create_task(compressor.compress(other))
        assert (await compressor.compress(session_id)).outcome == "done"
    assert (await store.view(other)).epoch == 0
    assert {line.session for line in read_log()} == {session_id}


@pytest.mark.contract("3.9", "3.10")
@pytest.mark.parametrize("count", [5, 13])
async def test_many_sessions_compressing_at_once_each_have_their_own_two_lines(
    store: Store, read_log: ReadLog, count: int
) -> None:
    ids = [await talked(store, 12) for _ in range(count)]
    go_on = asyncio.Event()
    asked = [asyncio.Event() for _ in ids]
    running = [
        asyncio.create_task(make_compressor(store, slow_summariser(event, go_on)).compress(key))
        for key, event in zip(ids, asked, strict=True)
    ]
    await asyncio.gather(*(event.wait() for event in asked))
    go_on.set()
    results = await asyncio.gather(*running)
    assert [(result.session_id, result.outcome) for result in results] == [(key, "done") for key in ids]
    lines = read_log()
    assert [line.word for line in lines] == ["started"] * count + ["done"] * count
    assert {line.session for line in lines} == set(ids)
    assert check_lines(lines) + check_one_at_a_time(lines) == []


@pytest.mark.contract("3.9")
async def test_compressions_in_threads_keep_their_lines_apart(tmp_path: Path, store: Store, read_log: ReadLog) -> None:
    ids = [await talked(store, 12) for _ in range(6)]
    outcomes: dict[str, str] = {}

    def work(session_id: str) -> None:
        async def compress() -> None:
            async with await Store.open(store.db.path, clock=store.clock, lock_timeout=30.0) as own:
                outcomes[session_id] = (await make_compressor(own, summariser()).compress(session_id)).outcome

        asyncio.run(compress())

    threads = [threading.Thread(target=work, args=(key,)) for key in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert outcomes == dict.fromkeys(ids, "done")
    assert check_lines(read_log()) == []
    assert len(read_log()) == 2 * len(ids)


@pytest.mark.contract("3.9")
async def test_cancelled_compression_ends_with_a_line_too_and_lets_the_next_one_in(
    store: Store, read_log: ReadLog
) -> None:
    session_id = await talked(store)
    asked = asyncio.Event()
    running = asyncio.create_task(make_compressor(store, slow_summariser(asked, asyncio.Event())).compress(session_id))
    await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [line.word for line in read_log()] == ["started", "failed"]
    assert (await make_compressor(store, summariser()).compress(session_id)).outcome == "done"
    assert check_lines(read_log()) + check_one_at_a_time(read_log()) == []
