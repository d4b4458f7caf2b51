"""Whatever becomes of a compression, its result is of the session it was asked for."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.compression.compressor import Compressor, Request
from hermes.compression.policy import CompressionPolicy
from hermes.db import leases
from hermes.errors import NotFoundError
from hermes.llm.events import Failed
from hermes.llm.scripted import ScriptedModel
from hermes.store.store import Store
from tests.compression.checks import check_lines
from tests.compression.conftest import ReadLog
from tests.compression.conversations import make_compressor, slow_summariser, summariser, talked


@pytest.mark.contract("3.1")
async def test_done_skipped_and_failed_results_are_of_the_session(store: Store, read_log: ReadLog) -> None:
    long, short = await talked(store), await talked(store, 1)
    broken = ScriptedModel(lambda _: Failed("server", "500", retryable=True))
    skipped = await make_compressor(store, summariser()).compress(short)
    failed = await make_compressor(store, broken).compress(long)
    done = await make_compressor(store, summariser()).compress(long)
    assert (skipped.session_id, skipped.outcome, skipped.snapshot_id) == (short, "skipped", None)
    assert (failed.session_id, failed.outcome, failed.snapshot_id) == (long, "failed", None)
    assert (done.session_id, done.outcome) == (long, "done")
    assert len(skipped.messages) == 2
    assert len(failed.messages) == 60
    assert done.messages == (await store.view(long)).messages
    assert check_lines(read_log()) == []


@pytest.mark.contract("3.1", "3.3")
async def test_stale_result_is_refused_and_is_of_the_session(store: Store, read_log: ReadLog) -> None:
    session_id = await talked(store)
    asked, go_on = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(make_compressor(store, slow_summariser(asked, go_on, "mine")).compress(session_id))
    await asked.wait()

    def lose(tx: sqlite3.Connection) -> None:
        held = leases.holder(tx, f"compression:{session_id}", now=store.clock.now())
        assert held is not None
        leases.evict(tx, held)

    await store.write(lose)
    assert (await make_compressor(store, summariser("theirs")).compress(session_id)).outcome == "done"
    go_on.set()
    result = await running
    assert (result.session_id, result.outcome) == (session_id, "failed")
    assert result.reason.startswith("refused: ")
    assert (await store.view(session_id)).summary == "theirs"
    assert check_lines(read_log()) == []


@pytest.mark.contract("3.1", "3.3", "3.6")
async def test_lease_that_cannot_be_asked_for_means_no_compression_and_no_model_call(
    tmp_path: Path, store: Store, read_log: ReadLog
) -> None:
    session_id = await talked(store)
    model = summariser()
    async with await Store.open(store.db.path, clock=SystemClock(), lock_timeout=0.05) as hasty:
        blocker = sqlite3.connect(store.db.path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        result = await make_compressor(hasty, model).compress(session_id, Request(must_fit=True))
        blocker.execute("ROLLBACK")
        blocker.close()
        assert (result.session_id, result.outcome) == (session_id, "failed")
        assert model.requests == []
        assert [line.word for line in read_log()] == ["started", "failed"]
        assert (await store.view(session_id)).epoch == 0
        assert (await make_compressor(hasty, model).compress(session_id)).outcome == "done"


async def test_lock_that_comes_during_the_summary_fails_it_and_removes_nothing(store: Store, read_log: ReadLog) -> None:
    session_id = await talked(store)
    asked, go_on = asyncio.Event(), asyncio.Event()
    async with await Store.open(store.db.path, clock=SystemClock(), lock_timeout=0.05) as hasty:
        compressor = make_compressor(hasty, slow_summariser(asked, go_on), lease=0.06)
        running = asyncio.create_task(compressor.compress(session_id))
        await asked.wait()
        blocker = sqlite3.connect(store.db.path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(0.3)  # several beats of the heart fail meanwhile; that alone must not end it
        assert not running.done()
        go_on.set()
        result = await running
        blocker.execute("ROLLBACK")
        blocker.close()
    assert (result.session_id, result.outcome) == (session_id, "failed")
    assert (await store.view(session_id)).epoch == 0
    assert check_lines(read_log()) == []
    assert (await make_compressor(store, summariser()).compress(session_id)).outcome in ("done", "busy")


@pytest.mark.contract("3.1")
async def test_session_deleted_meanwhile_fails_and_one_that_never_was_is_not_found(
    store: Store, read_log: ReadLog
) -> None:
    session_id = await talked(store)
    asked, go_on = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(make_compressor(store, slow_summariser(asked, go_on)).compress(session_id))
    await asked.wait()
    await store.write(lambda tx: store.deletions.delete(tx, session_id))
    go_on.set()
    result = await running
    assert (result.session_id, result.outcome) == (session_id, "failed")
    assert check_lines(read_log()) == []
    with pytest.raises(NotFoundError):
        await make_compressor(store, summariser()).compress("nobody")
    rows = await store.read(lambda tx: tx.execute("SELECT count(*) FROM hermes_compressions").fetchone()[0])
    assert rows == 0


@pytest.mark.contract("3.1", "P5")
async def test_cancel_that_meets_the_swap_is_logged_as_what_the_store_holds(store: Store, read_log: ReadLog) -> None:
    """However the cancel and the commit meet, log and store agree."""
    for pause in range(40):
        session_id = await talked(store, 12, filler="x" * 900)
        running = asyncio.create_task(make_compressor(store, summariser()).compress(session_id))
        for _ in range(pause * 20):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        epoch = (await store.view(session_id)).epoch
        ended = [line.word for line in read_log() if line.session == session_id and line.word != "started"]
        assert ended in ([], ["failed"], ["done"])
        assert epoch == ended.count("done")


async def test_without_a_model_the_digest_is_the_summary(store: Store) -> None:
    session_id = await talked(store)
    compressor = Compressor(store, None, CompressionPolicy(8_000), owner="test:1:x")
    result = await compressor.compress(session_id)
    assert result.outcome == "done"
    summary = (await store.view(session_id)).summary
    assert summary is not None
    assert summary.startswith("Digest (made without a model")
