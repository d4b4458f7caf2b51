"""Activity over time: turns with the seconds to their replies, and calls of models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.llm.tokens import view_tokens
from hermes.owner.sessions import read_parts
from hermes.owner.status import DAYS, HOURS, read_activity
from hermes.store.store import Store
from hermes.store.usage import HOUR_SECONDS, add_usage, usage_by_model
from hermes.types import Draft, Session, Spent, ToolCall

pytestmark = pytest.mark.contract("10.76")

NOON = datetime(2026, 6, 10, 12, 30).timestamp()


class SetClock(SystemClock):
    """A clock that a test sets."""

    at = NOON

    def now(self) -> float:
        return self.at


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def store(tmp_path: Path, clock: SetClock) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "state.db", clock=clock, lock_timeout=5.0) as opened:
        await opened.write(lambda tx: opened.sessions.create(tx, Session("s", "cli", NOON)))
        yield opened


async def turn(store: Store, clock: SetClock, at: float, seconds: float) -> None:
    """Run a turn that calls a tool."""
    clock.at = at
    await store.append("s", Draft("user", "How much?"))
    clock.at = at + seconds / 2
    await store.append("s", Draft("assistant", "", tool_calls=(ToolCall("c", "look", "{}"),)))
    await store.append("s", Draft("tool", "7", tool_call_id="c", tool_name="look"))
    clock.at = at + seconds
    await store.append("s", Draft("assistant", "Seven."))


async def test_turns_are_counted_by_hour_and_day_with_the_time_to_their_reply(store: Store, clock: SetClock) -> None:
    await turn(store, clock, NOON - 3 * 86_400, 9.0)
    for seconds in (1.0, 2.0, 60.0):
        await turn(store, clock, NOON - HOUR_SECONDS, seconds)
    await turn(store, clock, NOON, 4.0)
    hours = await store.read(lambda tx: read_activity(store, tx, "day", NOON + 60))
    assert (len(hours), [one.turns for one in hours[-3:]], sum(one.turns for one in hours)) == (HOURS, [0, 3, 1], 4)
    assert (hours[-2].median_seconds, hours[-2].slow_seconds) == (2.0, 60.0)
    assert hours[-3].median_seconds is None
    days = await store.read(lambda tx: read_activity(store, tx, "month", NOON + 60))
    assert (len(days), [one.turns for one in days[-4:]]) == (DAYS, [1, 0, 0, 4])
    assert [datetime.fromtimestamp(one.at).hour for one in days] == [0] * DAYS


async def test_unanswered_messages_and_late_replies_count_as_no_turn(store: Store, clock: SetClock) -> None:
    await store.append("s", Draft("user", "Are you there?"))
    await turn(store, clock, NOON + 50, 3.0)
    await turn(store, clock, NOON + 60, 2 * 86_400)
    found = await store.read(lambda tx: read_activity(store, tx, "day", NOON + 100))
    assert (found[-1].turns, found[-1].slow_seconds) == (1, 3.0)


async def test_requests_and_tokens_are_counted_when_they_are_spent(store: Store) -> None:
    for at in (NOON - 2 * HOUR_SECONDS, NOON, NOON):
        spent = {"big": Spent(1, 0, 100, 10), "small": Spent(2, 0, 5, 1)}
        await store.write(lambda tx, at=at, spent=spent: add_usage(tx, "s", spent, now=at))  # type: ignore[misc]
    found = await store.read(lambda tx: read_activity(store, tx, "day", NOON))
    assert [(one.requests, one.prompt_tokens, one.completion_tokens) for one in found[-3:]] == [
        (3, 105, 11),
        (0, 0, 0),
        (6, 210, 22),
    ]
    models = await store.read(lambda tx: usage_by_model(tx, 1))
    assert models == {"big": Spent(3, 0, 300, 30)}


@pytest.mark.contract("10.75")
async def test_parts_of_a_request_are_the_view_and_its_preamble(store: Store, clock: SetClock) -> None:
    for number in range(6):
        await turn(store, clock, NOON + number, 0.5)
    await store.write(lambda tx: store.sessions.set_system_prompt(tx, "s", "You are hermes."))
    seen = await store.read(lambda tx: store.compressions.look(tx, "s"))
    ids = [one.id for one in seen.view.messages]
    await store.write(lambda tx: store.compressions.swap(tx, seen, ids[-6], tuple(ids[:1]), "Sevens.", now=NOON))
    view = await store.view("s")
    parts = await store.read(lambda tx: read_parts(store, tx, store.sessions.get(tx, "s")))
    assert [(one.name, one.messages) for one in parts] == [
        ("system", 0), ("kept", 1), ("summary", 0), ("said", 1), ("replies", 2), ("tools", 2),
    ]  # fmt: skip
    assert sum(one.tokens for one in parts[1:]) == view_tokens(view)
