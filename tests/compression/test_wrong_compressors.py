"""The checks work: they find compressors that are wrong on purpose, and accept the real one."""

from __future__ import annotations

import asyncio

import pytest

from hermes.store.store import Store
from hermes.types import Draft
from tests.compression.checks import check_late, check_lines, check_one_at_a_time, check_store
from tests.compression.conftest import ReadLog
from tests.compression.conversations import make_compressor, said, slow_summariser, summariser, talked
from tests.compression.wrong import Hider, Unleased, compress_for_another, compress_into_new_session

LATE = ["first that came in between", "second that came in between"]


@pytest.mark.contract("3.14")
async def test_anomaly_a_a_result_under_a_new_id_is_found(store: Store, read_log: ReadLog) -> None:
    session_id = await talked(store)
    before = await said(store, session_id)
    child = await compress_into_new_session(store, session_id)
    found = check_lines(read_log())
    assert any("began with session" in line and child in line for line in found)
    assert f"session {child} came or went" in await check_store(store, before)
    await store.write(lambda tx: store.deletions.delete(tx, child))

    good = len(read_log())
    result = await make_compressor(store, summariser()).compress(session_id)
    assert result.session_id == session_id
    assert check_lines(read_log()[good:]) + await check_store(store, before, read_log()[good:]) == []


@pytest.mark.contract("3.14")
async def test_anomaly_b_one_session_compressing_another_is_found_and_refused(store: Store, read_log: ReadLog) -> None:
    own, foreign = await talked(store), await talked(store)
    await compress_for_another(store, own, foreign)
    assert check_lines(read_log()) == [f"op b1: session {own} works on session {foreign}"] * 2

    good = len(read_log())
    compressor = make_compressor(store, summariser())
    results = await asyncio.gather(compressor.compress(own), compressor.compress(foreign))
    assert [result.session_id for result in results] == [own, foreign]
    assert check_lines(read_log()[good:]) + check_one_at_a_time(read_log()[good:]) == []


@pytest.mark.contract("3.14", "3.4")
async def test_hidden_late_messages_are_found_and_the_real_compressor_hides_none(
    store: Store, read_log: ReadLog
) -> None:
    session_id = await talked(store)
    hider = Hider(store, session_id)
    await hider.begin()
    await store.append(session_id, *(Draft("user", text) for text in LATE))
    await hider.end()
    assert await check_late(store, session_id, LATE) != []

    other = await talked(store)
    asked, go_on = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(make_compressor(store, slow_summariser(asked, go_on)).compress(other))
    await asked.wait()
    await store.append(other, *(Draft("user", text) for text in LATE))
    go_on.set()
    assert (await running).outcome == "done"
    assert await check_late(store, other, LATE) == []


@pytest.mark.contract("3.14", "3.3")
async def test_two_workers_without_a_lease_are_found_and_the_real_ones_take_turns(
    store: Store, read_log: ReadLog
) -> None:
    session_id = await talked(store)
    workers = [Unleased(store, session_id, op) for op in ("u1", "u2")]
    for worker in workers:
        await worker.begin()
    for worker in workers:
        await worker.end()
    assert check_one_at_a_time(read_log()) == [f"session {session_id}: u2 began while u1 was at work"]

    good = len(read_log())
    other = await talked(store)
    asked, go_on = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(make_compressor(store, slow_summariser(asked, go_on)).compress(other))
    await asked.wait()
    second = await make_compressor(store, summariser()).compress(other)
    go_on.set()
    assert ((await first).outcome, second.outcome) == ("done", "busy")
    assert check_one_at_a_time(read_log()[good:]) + check_lines(read_log()[good:]) == []
