"""Conversations of other versions continue where people last wrote, and a key leads to the newest binding."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from hermes.store.store import Store
from tests.audit.wounds import CHILD, KEY, PARENT, ROTATED_AT, SIBLING, SUMMARY, Hand, rotate
from tests.store import old_files as old
from tests.store.still_clock import StillClock

NOW = ROTATED_AT + 9_999


async def opened(hand: Hand) -> Store:
    return await Store.open(hand.file.path, clock=StillClock(NOW), lock_timeout=10)


async def live_id(hand: Hand, session_id: str = PARENT) -> str:
    async with await opened(hand) as store:
        listed = await store.read(lambda tx: store.sessions.recent(tx, limit=-1))
        found = await store.read(lambda tx: store.sessions.live_id(tx, session_id))
        assert found in {entry.session.id for entry in listed}, "what is live is listed"
        return found


@pytest.fixture(params=[old.early_file, old.current_file])
def hand(tmp_path: Path, request: pytest.FixtureRequest) -> Hand:
    return Hand(request.param(tmp_path))


@pytest.mark.contract("1.4", "10.9")
async def test_client_that_keeps_its_id_stays_in_its_session(hand: Hand) -> None:
    rotate(hand, said_later=None)
    hand.say(PARENT, ROTATED_AT + 1, "did you get my mail?")
    assert await live_id(hand) == PARENT
    hand.say(CHILD, ROTATED_AT + 30, "someone followed after all")
    assert await live_id(hand) == CHILD


@pytest.mark.contract("1.4")
async def test_a_late_reply_in_the_parent_leaves_the_conversation_in_the_child(hand: Hand) -> None:
    rotate(hand, said_later=None)
    hand.say(PARENT, ROTATED_AT + 1, "one moment", role="assistant")
    assert await live_id(hand) == CHILD


@pytest.mark.contract("1.4")
async def test_empty_child_is_no_continuation(hand: Hand) -> None:
    rotate(hand, said_later=None)
    hand.file.run(f"DELETE FROM messages WHERE session_id = '{CHILD}'")
    assert await live_id(hand) == PARENT


@pytest.mark.contract("1.4")
async def test_a_child_that_began_a_moment_before_its_parents_end_is_followed(hand: Hand) -> None:
    rotate(hand)
    hand.file.run(f"UPDATE sessions SET started_at = {ROTATED_AT - 3} WHERE id = '{CHILD}'")
    assert await live_id(hand) == CHILD
    hand.file.run(f"UPDATE messages SET content = 'count the boats' WHERE content = '{SUMMARY}'")
    assert await live_id(hand) == PARENT, "one that does not begin with a summary is a helper's run"


@pytest.mark.contract("1.4")
@pytest.mark.parametrize("mark", ["_branched_from", "_delegate_from"])
async def test_branches_and_sub_agent_runs_are_no_continuation(tmp_path: Path, mark: str) -> None:
    hand = Hand(old.current_file(tmp_path))
    rotate(hand)
    hand.session(SIBLING, ROTATED_AT + 500, parent_session_id=PARENT, model_config=json.dumps({mark: PARENT}))
    hand.say(SIBLING, ROTATED_AT + 501, "on another way")
    assert await live_id(hand) == CHILD


@pytest.mark.contract("10.9")
async def test_bindings_are_shared_with_another_version_in_both_directions(tmp_path: Path) -> None:
    hand = Hand(old.current_file(tmp_path))
    rotate(hand)
    hand.route(KEY, PARENT)
    async with await opened(hand) as store:
        await store.write(lambda tx: store.routes.bind(tx, KEY, CHILD, now=NOW))
        assert await store.read(lambda tx: store.routes.lookup(tx, KEY)) == CHILD
        ((text,),) = hand.file.rows("SELECT entry_json FROM gateway_routing WHERE session_key = ?", (KEY,))
        entry = json.loads(str(text))
        assert (entry["session_key"], entry["session_id"]) == (KEY, CHILD)
        assert datetime.fromisoformat(entry["updated_at"]).timestamp() == NOW
        assert await store.read(store.routes.differing) == {}
        entry |= {"session_id": PARENT, "updated_at": datetime.fromtimestamp(NOW + 60).isoformat()}
        hand.file.run(f"UPDATE gateway_routing SET entry_json = '{json.dumps(entry)}' WHERE session_key = '{KEY}'")
        assert await store.read(lambda tx: store.routes.lookup(tx, KEY)) == PARENT
        assert (await store.read(store.routes.all))[KEY] == PARENT
        assert await store.read(store.routes.differing) == {KEY: (CHILD, PARENT)}


@pytest.mark.contract("10.9")
async def test_older_binding_of_another_version_is_ignored(tmp_path: Path) -> None:
    hand = Hand(old.early_file(tmp_path))
    rotate(hand)
    hand.route(KEY, PARENT)
    async with await opened(hand) as store:
        await store.write(lambda tx: store.routes.bind(tx, KEY, CHILD, now=NOW))
        assert await store.read(lambda tx: store.routes.lookup(tx, KEY)) == CHILD
        assert await store.read(store.routes.differing) == {KEY: (CHILD, PARENT)}
