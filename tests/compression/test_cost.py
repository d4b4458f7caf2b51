"""The cost of a compression: one row. `python -m bench compression` compares its time with the model's."""

from __future__ import annotations

import pytest

from hermes.db.engine import Tx
from hermes.store.store import Store
from tests.compression.conversations import make_compressor, summariser, talked, turns

LONG = 350
"""Return turns of about 145,000 tokens."""
WINDOW = 200_000


def count_rows(tx: Tx) -> dict[str, int]:
    tables = [row["name"] for row in tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: tx.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables}


@pytest.mark.contract("3.11")
async def test_compression_writes_one_row_and_its_lease_and_no_copy_of_messages(store: Store) -> None:
    session_id = await talked(store, LONG, filler="word " * 160)
    before = await store.read(count_rows)
    pages = await store.read(lambda tx: tx.execute("PRAGMA page_count").fetchone()[0])
    result = await make_compressor(store, summariser(), window=WINDOW).compress(session_id)
    assert result.outcome == "done"
    assert result.before > 130_000
    after = await store.read(count_rows)
    changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert changed == {"hermes_compressions": 1, "hermes_leases": 1}
    assert await store.read(lambda tx: tx.execute("PRAGMA page_count").fetchone()[0]) - pages <= 3


@pytest.mark.contract("3.11")
async def test_view_after_many_compressions_reads_no_more_than_after_one(store: Store) -> None:
    session_id = await talked(store, 12)
    compressor = make_compressor(store, summariser())
    sizes: list[int] = []
    for number in range(30):
        assert (await compressor.compress(session_id)).outcome == "done"
        latest = await store.read(lambda tx: store.compressions.latest(tx, session_id))
        sizes.append(len(await store.read(lambda tx, row=latest: store.messages.live(tx, session_id, row))))  # type: ignore[misc]
        await store.append(session_id, *turns(8, start=100 * (number + 1)))
    assert set(sizes) == {9}
