"""One key has one live session; bindings of older versions are read in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.errors import NotFoundError, StoreDamagedError
from hermes.store.store import Store
from tests.store import old_files as old
from tests.store.still_clock import StillClock


async def opened(path: Path) -> Store:
    return await Store.open(path, clock=StillClock(10_000.0), lock_timeout=10)


async def lookup(store: Store, key: str) -> str | None:
    return await store.read(lambda tx: store.routes.lookup(tx, key))


async def bind(store: Store, key: str, session_id: str) -> None:
    await store.write(lambda tx: store.routes.bind(tx, key, session_id, now=1.0))


@pytest.mark.contract("1.2")
async def test_key_means_the_session_it_was_bound_to_last(store: Store) -> None:
    first, second = await store.create_session("cli"), await store.create_session("cli")
    assert await lookup(store, "k") is None
    for session in (first, second):
        await bind(store, "k", session.id)
        assert await lookup(store, "k") == session.id
    assert await store.read(store.routes.all) == {"k": second.id}


async def test_binding_to_a_session_that_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(NotFoundError):
        await bind(store, "k", "nobody")
    assert await lookup(store, "k") is None


@pytest.mark.contract("1.4")
async def test_bindings_in_the_old_table_are_read_and_the_newest_counts(tmp_path: Path) -> None:
    async with await opened(old.current_file(tmp_path).path) as store:
        assert await lookup(store, old.KEY) == old.GRANDCHILD
        assert await lookup(store, old.OTHER_KEY) == old.CLIENT
        for key in ("broken", "listed", "gone", "agent:main:telegram:dm:stale", "never seen"):
            assert await lookup(store, key) is None
        assert await store.read(store.routes.all) == {old.KEY: old.GRANDCHILD, old.OTHER_KEY: old.CLIENT}


@pytest.mark.contract("1.4")
async def test_bindings_in_the_old_file_are_read(tmp_path: Path) -> None:
    async with await opened(old.early_file(tmp_path).path) as store:
        assert await lookup(store, old.KEY) == old.GRANDCHILD
        assert await lookup(store, "agent:main:telegram:dm:1") is None
        assert await store.read(store.routes.all) == {old.KEY: old.GRANDCHILD, old.OTHER_KEY: old.CLIENT}


async def test_old_file_counts_while_the_old_table_is_empty(tmp_path: Path) -> None:
    file = old.early_file(tmp_path)
    file.run(old.SIDE_22[2])
    async with await opened(file.path) as store:
        assert await lookup(store, old.KEY) == old.GRANDCHILD


async def test_our_binding_beats_an_old_one(tmp_path: Path) -> None:
    file = old.current_file(tmp_path)
    async with await opened(file.path) as store:
        await bind(store, old.KEY, old.ODD)
    async with await opened(file.path) as store:
        assert await lookup(store, old.KEY) == old.ODD


async def test_key_whose_session_another_program_deleted_is_new_again(tmp_path: Path) -> None:
    file = old.current_file(tmp_path)
    async with await opened(file.path) as store:
        await bind(store, "k", old.ODD)
        file.run(f"DELETE FROM sessions WHERE id = '{old.ODD}'")
        assert await lookup(store, "k") is None
        assert "k" not in await store.read(store.routes.all)


@pytest.mark.parametrize(("content", "said"), [(b"{broken", "not a JSON object"), (b"\xff\xfe", "cannot read")])
async def test_broken_old_file_is_reported_not_ignored(tmp_path: Path, content: bytes, said: str) -> None:
    file = old.early_file(tmp_path)
    (tmp_path / "sessions" / "sessions.json").write_bytes(content)
    async with await opened(file.path) as store:
        with pytest.raises(StoreDamagedError, match=said):
            await lookup(store, old.KEY)
