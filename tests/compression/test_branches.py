"""The result of a compression always belongs to its session, however the compression ends."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from hermes.clock import SystemClock
from hermes.compression.compressor import CompressionResult, Compressor, Request
from hermes.compression.cut import CompressionPolicy
from hermes.db import leases
from hermes.db.engine import Tx
from hermes.errors import NotFoundError
from hermes.llm.events import ModelFailed
from hermes.store.compressions import read_failures
from hermes.store.store import Store
from tests.compression.checks import check_lines
from tests.compression.conftest import ReadLog
from tests.compression.conversations import make_compressor, slow_summariser, summariser, talked
from tests.llm.scripted import ScriptedModel

T = TypeVar("T")


def lose_lease(session_id: str, tx: Tx) -> None:
    """Let the lease expire without a new holder."""
    leases.revoke(tx, f"compression:{session_id}")


@pytest.mark.contract("3.1")
async def test_done_skipped_and_failed_results_are_of_the_session(store: Store, read_log: ReadLog) -> None:
    long, short = await talked(store), await talked(store, 1)
    broken = ScriptedModel(lambda _: ModelFailed("server", "500", retryable=True))
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
    await store.write(partial(lose_lease, session_id))
    assert (await make_compressor(store, summariser("theirs")).compress(session_id)).outcome == "done"
    go_on.set()
    result = await running
    assert (result.session_id, result.outcome) == (session_id, "failed")
    assert result.reason.startswith("refused: ")
    assert (await store.view(session_id)).summary == "theirs"
    assert check_lines(read_log()) == []


@pytest.mark.contract("3.3")
async def test_stale_result_is_refused_also_while_its_successor_is_still_at_work(store: Store) -> None:
    session_id = await talked(store)
    asked, go_on = [asyncio.Event(), asyncio.Event()], [asyncio.Event(), asyncio.Event()]
    running: list[asyncio.Task[CompressionResult]] = []
    for number, text in enumerate(("mine", "theirs")):
        if running:
            await store.write(partial(lose_lease, session_id))
        compressor = make_compressor(store, slow_summariser(asked[number], go_on[number], text))
        running.append(asyncio.create_task(compressor.compress(session_id)))
        await asked[number].wait()
    go_on[0].set()
    assert (await running[0]).reason.startswith("refused: ")
    assert (await store.view(session_id)).epoch == 0
    go_on[1].set()
    assert (await running[1]).outcome == "done"
    assert (await store.view(session_id)).summary == "theirs"


@pytest.mark.contract("3.1", "3.3", "3.6")
async def test_without_access_to_the_lease_nothing_is_compressed(
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


async def test_locked_store_during_the_summary_fails_it_and_removes_nothing(store: Store, read_log: ReadLog) -> None:
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
async def test_session_deleted_meanwhile_fails_and_an_unknown_one_is_not_found(store: Store, read_log: ReadLog) -> None:
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


@pytest.mark.contract("3.1", "3.3")
async def test_summary_of_a_deleted_session_does_not_reach_a_new_one_with_its_id(store: Store) -> None:
    session_id = await talked(store)
    asked, go_on = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(make_compressor(store, slow_summariser(asked, go_on)).compress(session_id))
    await asked.wait()
    await store.write(lambda tx: store.deletions.delete(tx, session_id))
    await talked(store, session_id=session_id)
    go_on.set()
    assert (await running).outcome == "failed"
    assert (await store.view(session_id)).epoch == 0


@pytest.mark.contract("3.1", "P5")
async def test_log_agrees_with_the_store_when_a_cancel_meets_the_swap(store: Store, read_log: ReadLog) -> None:
    """However a cancellation and the commit interleave, log and store agree."""
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


@pytest.mark.contract("3.3")
async def test_failure_of_a_stale_owner_is_not_held_against_the_session(store: Store) -> None:
    session_id = await talked(store)
    asked, go_on = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(make_compressor(store, slow_summariser(asked, go_on, " ")).compress(session_id))
    await asked.wait()
    await store.write(partial(lose_lease, session_id))
    assert (await make_compressor(store, summariser()).compress(session_id)).outcome == "done"
    go_on.set()
    assert (await running).reason.startswith("refused: ")
    assert (await store.read(lambda tx: read_failures(tx, session_id))).count == 0


class HesitantStore:
    """A store whose `at`-th write is committed, but returns only when the test lets it."""

    def __init__(self, store: Store, at: int) -> None:
        self._store = store
        self._left = at
        self.committed = asyncio.Event()
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, run: Callable[[Tx], T]) -> T:
        result = await self._store.write(run)
        self._left -= 1
        if self._left == 0:
            self.committed.set()
            await self.go_on.wait()
        return result


@pytest.mark.contract("3.9")
async def test_cancel_after_the_swap_was_committed_is_logged_as_done(store: Store, read_log: ReadLog) -> None:
    session_id = await talked(store)
    hesitant = HesitantStore(store, at=2)
    running = asyncio.create_task(make_compressor(cast(Store, hesitant), summariser()).compress(session_id))
    await hesitant.committed.wait()
    running.cancel()
    hesitant.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await store.view(session_id)).epoch == 1
    assert [line.word for line in read_log()] == ["started", "done"]


@pytest.mark.contract("3.3")
async def test_lease_that_is_granted_to_a_cancelled_compression_is_given_back(store: Store) -> None:
    session_id = await talked(store)
    hesitant = HesitantStore(store, at=1)
    running = asyncio.create_task(make_compressor(cast(Store, hesitant), summariser()).compress(session_id))
    await hesitant.committed.wait()
    running.cancel()
    hesitant.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await make_compressor(store, summariser()).compress(session_id)).outcome == "done"
