"""Acceptance scenarios for session stability under compression, one test per scenario, with the scenario's name."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from hermes.agent.context import build_context
from hermes.db.engine import Tx
from hermes.store.store import Store
from hermes.types import Draft, LiveView
from tests.compression.checks import check_late, check_lines, check_one_at_a_time, check_store
from tests.compression.conftest import ReadLog
from tests.compression.conversations import (
    is_summary_request,
    make_compressor,
    said,
    slow_summariser,
    summariser,
    talked,
    turns,
)
from tests.compression.hand_clock import HandClock


@pytest.mark.contract("3.1", "3.9", "P3")
async def test_compression_preserves_session_id(store: Store, read_log: ReadLog) -> None:
    session_id = await talked(store, 100)
    key = "agent:main:telegram:dm:8439114563"
    await store.write(lambda tx: store.routes.bind(tx, key, session_id, now=1.0))
    before = await said(store, session_id)
    assert len(before[session_id]) == 200

    result = await make_compressor(store, summariser()).compress(session_id)

    assert (result.session_id, result.outcome) == (session_id, "done")
    assert result.after < result.before
    start, end = read_log()
    assert (start.word, start.session, start.bracket) == ("started", session_id, session_id)
    assert (end.word, end.session, end.bracket, end.op) == ("done", session_id, session_id, start.op)
    assert await store.read(lambda tx: store.routes.lookup(tx, key)) == session_id
    await store.append(session_id, Draft("user", "and now?"))
    before[session_id].append("and now?")
    assert await check_store(store, before, read_log()) == []
    context = build_context("prompt", await store.view(session_id))
    assert "they spoke of stamps" in context[2]["content"]
    assert context[-1] == {"role": "user", "content": "and now?"}


@pytest.mark.contract("3.3", "3.9")
async def test_no_cross_session_compression_aliasing(store: Store, read_log: ReadLog) -> None:
    first, second = await talked(store), await talked(store)
    asked, go_on = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(make_compressor(store, slow_summariser(asked, go_on)).compress(first))
    await asked.wait()
    rival = summariser()
    refused = await make_compressor(store, rival).compress(first)
    assert (refused.session_id, refused.outcome, rival.requests) == (first, "busy", [])
    go_on.set()
    assert (await running).outcome == "done"

    assert {(line.session, line.bracket) for line in read_log()} == {(first, first)}
    assert check_lines(read_log()) + check_one_at_a_time(read_log()) == []
    assert await check_store(store, await said(store, first, second), read_log()) == []


@pytest.mark.contract("3.4", "3.5", "P1")
async def test_post_compression_message_delivery(store: Store, read_log: ReadLog) -> None:
    session_id = await talked(store)
    asked, go_on = asyncio.Event(), asyncio.Event()
    model = slow_summariser(asked, go_on)
    running = asyncio.create_task(make_compressor(store, model).compress(session_id))
    await asked.wait()
    late = [f"message {number} that came in between" for number in range(5)]
    for text in late:
        await store.append(session_id, Draft("user", text))
    go_on.set()
    result = await running

    assert result.outcome == "done"
    assert await check_late(store, session_id, late) == []
    assert await check_store(store, await said(store, session_id), read_log()) == []
    context = build_context("prompt", await store.view(session_id))
    assert [message["content"] for message in context[-5:]] == late
    assert all(is_summary_request(request) for request in model.requests)
    assert not any(text in str(request.messages) for request in model.requests for text in late)


def snapshot_of(store: Store, name: str, tx: Tx) -> LiveView:
    return store.compressions.snapshot(tx, name)


@pytest.mark.contract("3.2")
async def test_every_earlier_state_stays_readable_and_is_no_session(store: Store) -> None:
    session_id = await talked(store)
    compressor = make_compressor(store, summariser())
    states = []
    for round_ in range(3):
        states.append(await store.view(session_id))
        result = await compressor.compress(session_id)
        assert result.snapshot_id is not None
        assert result.snapshot_id.startswith(f"{session_id}.snapshot.")
        await store.append(session_id, *turns(20, start=100 * (round_ + 1)))
    rows = await store.read(lambda tx: store.compressions.all(tx, session_id))
    for row, state in zip(rows, states, strict=True):
        assert await store.read(partial(snapshot_of, store, row.snapshot_id)) == state
    listed = await store.read(lambda tx: store.sessions.recent(tx, limit=-1, everything=True))
    assert [entry.session.id for entry in listed] == [session_id]
    assert await check_store(store, await said(store, session_id)) == []


async def test_two_compressions_in_the_same_moment_have_snapshots_of_their_own(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "still.db", clock=HandClock(), lock_timeout=10.0) as store:
        session_id = await talked(store)
        compressor = make_compressor(store, summariser())
        first = await compressor.compress(session_id)
        await store.append(session_id, *turns(20, start=100))
        second = await compressor.compress(session_id)
        assert (first.outcome, second.outcome) == ("done", "done")
        assert first.snapshot_id != second.snapshot_id
