"""Text that is not UTF-8, left by another program, is read with U+FFFD in its place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes.db.engine import StoreDatabase, Tx


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[StoreDatabase]:
    database = StoreDatabase(tmp_path / "e.db", lock_timeout=10.0)
    await database.write(lambda tx: tx.execute("CREATE TABLE t (v TEXT)"))
    await database.write(lambda tx: tx.execute("INSERT INTO t VALUES (CAST(x'41ff42' AS TEXT))"))
    yield database
    await database.close()


def read(tx: Tx) -> str:
    return str(tx.execute("SELECT v FROM t ORDER BY rowid").fetchone()[0])


def add_and_read(tx: Tx) -> str:
    tx.execute("INSERT INTO t VALUES ('another')")
    return read(tx)


async def test_text_that_is_no_utf8_is_read_with_a_mark_in_its_place(db: StoreDatabase) -> None:
    assert [await db.read(read), await db.look(read), await db.read(read)] == ["A\ufffdB"] * 3


async def test_write_that_meets_such_text_has_its_effect_once(db: StoreDatabase) -> None:
    assert await db.write(add_and_read) == "A\ufffdB"
    assert await db.read(lambda tx: tx.execute("SELECT count(*) FROM t").fetchone()[0]) == 2
