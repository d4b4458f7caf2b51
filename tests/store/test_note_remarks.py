"""Pending notices: few per person, in order, each taken once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.events import MemoryUpdated
from hermes.memory.forgetting import Kept, forget_kept
from hermes.memory.values import Wording
from hermes.scope import OWNER, Group, Guest, Scope
from hermes.store import schema
from hermes.store import store as opening
from hermes.store.reviews import MAX_PENDING_NOTICES, has_remarks, keep_remarks, take_remarks
from hermes.store.store import Store

ANN = Guest("telegram", "1")


def noted(text: str) -> MemoryUpdated:
    return MemoryUpdated("user", "add", text)


async def keep(store: Store, scope: Scope, *texts: str) -> None:
    await store.write(lambda tx: keep_remarks(tx, scope, [noted(text) for text in texts]))


async def take(store: Store, scope: Scope) -> list[str]:
    return [found.text for found in await store.write(lambda tx: take_remarks(tx, scope))]


@pytest.mark.contract("4.10")
async def test_newest_notices_of_each_person_are_kept_in_order(store: Store) -> None:
    for number in range(MAX_PENDING_NOTICES + 3):
        await keep(store, ANN, f"fact {number}")
    await keep(store, OWNER, "of the owner")
    assert await take(store, ANN) == [f"fact {number}" for number in range(3, MAX_PENDING_NOTICES + 3)]
    assert await take(store, ANN) == []
    assert await take(store, OWNER) == ["of the owner"]


@pytest.mark.parametrize("scope", [Group("agent:main:telegram:group:-1"), Guest("api", "bob")])
async def test_groups_and_api_guests_get_no_notices(store: Store, scope: Scope) -> None:
    await keep(store, scope, "a fact")
    assert not await store.read(lambda tx: has_remarks(tx, scope))


@pytest.mark.contract("7.12")
async def test_notices_of_forgotten_notes_are_dropped(store: Store) -> None:
    await keep(store, ANN, "likes figs", "likes dates")
    await store.write(lambda tx: forget_kept(store, tx, Wording(("figs",)), Kept(), now=1.0))
    assert await take(store, ANN) == ["likes dates"]


@pytest.mark.contract("1.4")
async def test_a_file_of_the_version_before_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.db"
    with monkeypatch.context() as before:
        before.setattr(opening, "MIGRATIONS", schema.MIGRATIONS[:10])
        async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:
            session = await store.create_session("cli")
    async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:
        assert await store.read(lambda tx: store.sessions.exists(tx, session.id))
        await keep(store, OWNER, "a fact")
        assert await take(store, OWNER) == ["a fact"]
