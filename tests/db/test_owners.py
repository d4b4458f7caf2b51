"""Owners: the lane of a process that has certainly ended can be taken at once, and no other."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from hermes.db import lanes
from hermes.db.leases import is_gone, new_owner
from tests.db.files import make_file, transaction
from tests.db.processes import await_end, hear, start


def test_names_of_one_process_differ() -> None:
    assert len({new_owner() for _ in range(50)}) == 50


@pytest.mark.processes
@pytest.mark.contract("2.3", "3.3")
def test_only_the_lane_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    db = make_file(tmp_path / "o.db")
    process = start("tests.db.claimant", tmp_path / "o.db", "work", "a")
    owner = hear(process)
    with transaction(db) as tx:
        assert lanes.hold_lane(tx, "work", "a", new_owner(), ttl=5.0, now=time.time()) is None
    assert not is_gone(owner)
    process.kill()
    await_end(process)
    assert is_gone(owner)
    with transaction(db) as tx:
        lease = lanes.hold_lane(tx, "work", "a", new_owner(), ttl=5.0, now=time.time())
    assert lease is not None
    assert lease.epoch == 2
    db.close()


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")
@pytest.mark.contract("2.3", "3.3")
def test_process_that_ended_and_was_not_waited_for_is_gone(tmp_path: Path) -> None:
    make_file(tmp_path / "o.db").close()
    process = start("tests.db.claimant", tmp_path / "o.db", "work", "a")
    owner = hear(process)
    assert not is_gone(owner)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays in the table of processes
    os.kill(process.pid, 0)
    assert is_gone(owner)
    await_end(process)
    assert is_gone(owner)


@pytest.mark.processes
def test_owner_we_cannot_be_sure_of_is_not_gone(tmp_path: Path) -> None:
    process = start("tests.db.claimant", tmp_path / "none" / "o.db", "work", "a")
    await_end(process)
    place = new_owner().partition(":")[0]
    assert is_gone(f"{place}:{process.pid}:00000000")
    for elsewhere in (f"other-{place}", f"{place}0"):
        assert not is_gone(f"{elsewhere}:{process.pid}:00000000")
    for odd in ("", "me", f"{place}:", f"{place}:x:y", f"{place}:1:0"):
        assert not is_gone(odd)


def test_foreign_owner_name_with_our_process_id_is_gone() -> None:
    place = new_owner().partition(":")[0]
    assert is_gone(f"{place}:{os.getpid()}:00000000")
    assert not is_gone(new_owner())
