"""Leases: one holder at a time, growing epochs, and a refusal for a former holder."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.db import leases
from hermes.db.engine import StoreDatabase
from hermes.db.leases import new_owner
from hermes.errors import StaleError
from tests.db.files import dump, make_file
from tests.db.processes import finish, hear, say, start
from tests.scale import scale


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = make_file(tmp_path / "l.db")
    yield connection
    connection.close()


@pytest.mark.contract("3.3")
def test_held_lease_is_refused_to_everyone_until_it_expires(db: sqlite3.Connection) -> None:
    first = leases.acquire(db, "compress:s", "p1", ttl=10.0, now=0.0)
    assert first is not None
    assert leases.acquire(db, "compress:s", "p2", ttl=10.0, now=9.9) is None
    assert leases.acquire(db, "compress:s", "p1", ttl=10.0, now=9.9) is None
    assert leases.holder(db, "compress:s", now=9.9) == first
    assert leases.holder(db, "compress:s", now=10.0) is None
    second = leases.acquire(db, "compress:s", "p2", ttl=10.0, now=10.0)
    assert second is not None
    assert second.epoch == first.epoch + 1
    assert leases.holder(db, "compress:s", now=10.0) == second


@pytest.mark.contract("3.3")
def test_stale_owner_can_neither_check_renew_nor_release(db: sqlite3.Connection) -> None:
    stale = leases.acquire(db, "x", "p1", ttl=1.0, now=0.0)
    fresh = leases.acquire(db, "x", "p2", ttl=1.0, now=1.0)
    assert stale is not None
    assert fresh is not None
    before = dump(db)
    with pytest.raises(StaleError):
        leases.check(db, stale)
    with pytest.raises(StaleError):
        leases.renew(db, stale, ttl=5.0, now=1.5)
    with pytest.raises(StaleError):
        leases.release(db, stale)
    assert dump(db) == before
    leases.check(db, fresh)


@pytest.mark.contract("3.3")
def test_new_lease_of_the_same_owner_differs_from_its_earlier_one(db: sqlite3.Connection) -> None:
    before = leases.acquire(db, "x", "p1", ttl=1.0, now=0.0)
    after = leases.acquire(db, "x", "p1", ttl=1.0, now=2.0)
    assert before is not None
    assert after is not None
    with pytest.raises(StaleError):
        leases.release(db, before)
    leases.release(db, after)
    with pytest.raises(StaleError):
        leases.release(db, after)


def test_expired_lease_that_nobody_took_can_be_renewed(db: sqlite3.Connection) -> None:
    lease = leases.acquire(db, "x", "p1", ttl=1.0, now=0.0)
    assert lease is not None
    renewed = leases.renew(db, lease, ttl=1.0, now=5.0)
    assert renewed.epoch == lease.epoch
    assert leases.acquire(db, "x", "p2", ttl=1.0, now=5.5) is None


@pytest.mark.contract("3.3")
@given(
    steps=st.lists(st.tuples(st.sampled_from(("acquire", "renew", "release")), st.sampled_from("abc"), st.floats(0, 3)))
)
def test_epochs_only_grow_and_holders_never_overlap(steps: list[tuple[str, str, float]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        db = make_file(Path(folder) / "l.db")
        now, epoch = 0.0, 0
        held: dict[str, leases.Lease] = {}
        for act, owner, pause in steps:
            now += pause
            live = {name for name, lease in held.items() if lease.expires_at > now}
            if act == "acquire":
                got = leases.acquire(db, "x", owner, ttl=2.0, now=now)
                assert (got is None) == bool(live)
                if got is not None:
                    assert got.epoch == epoch + 1
                    epoch, held = got.epoch, {owner: got}
            elif owner in held and act == "renew":
                held[owner] = leases.renew(db, held[owner], ttl=2.0, now=now)
            elif owner in held:
                leases.release(db, held.pop(owner))
        db.close()


@pytest.mark.processes
@pytest.mark.stress
@pytest.mark.contract("3.3", "2.3")
async def test_processes_that_fight_for_one_lease_never_hold_it_together(tmp_path: Path) -> None:
    path, count, rivals = tmp_path / "l.db", scale(20, 400), scale(3, 9)
    make_file(path).close()
    db = StoreDatabase(path, lock_timeout=30.0)
    await db.write(lambda tx: tx.execute("CREATE TABLE diary (seq INTEGER PRIMARY KEY, epoch INTEGER, what TEXT)"))
    processes = [start("tests.db.rival", path, f"p{number}", count) for number in range(rivals)]
    for process in processes:
        assert hear(process) == "ready"
    for process in processes:
        say(process, "go")
    assert sum(int(finish(process)) for process in processes) == rivals * count

    rows = await db.read(lambda tx: tx.execute("SELECT epoch, what FROM diary ORDER BY seq").fetchall())
    await db.close()
    assert [(row["epoch"], row["what"]) for row in rows] == [
        (epoch, what) for epoch in range(1, rivals * count + 1) for what in ("in", "out")
    ]


def test_owner_is_described_by_its_process_and_by_its_machine_if_that_is_another() -> None:
    assert leases.describe_owner(new_owner()) == f"process {os.getpid()}"
    assert leases.describe_owner("elsewhere/42:17:00000000") == "process 17 on elsewhere"


def test_ended_owner_holds_nothing_and_its_late_writes_are_refused(db: sqlite3.Connection) -> None:
    gone = f"{new_owner().partition(':')[0]}:{os.getpid()}:00000000"
    left = leases.acquire(db, "x", gone, ttl=60.0, now=0.0)
    assert left is not None
    assert leases.holder(db, "x", now=1.0) is None
    taken = leases.acquire(db, "x", new_owner(), ttl=60.0, now=1.0)
    assert taken is not None
    assert leases.holder(db, "x", now=1.0) == taken
    assert not leases.free_from_gone(db, "x", now=1.0)
    with pytest.raises(StaleError):
        leases.check(db, left)
