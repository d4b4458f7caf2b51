"""Lanes of sessions: one turn after another, across processes."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
from contextlib import closing

import pytest

from hermes.clock import SystemClock
from hermes.db import lanes, leases
from hermes.db.engine import Tx
from hermes.errors import SessionBusyError
from hermes.events import Failed, Replied
from hermes.llm.events import Reply
from hermes.store.held_lease import LaneOptions
from hermes.store.ids import SESSIONS
from hermes.store.store import Store
from hermes.types import Json
from tests.agent.agents import TERMS, make_agent, spoken, take_turn
from tests.agent.lanes import hold_lane
from tests.db.processes import await_end, hear, say, start, stop_between_writes
from tests.llm.scripted import ScriptedModel
from tests.scale import scale

PATIENT = LaneOptions(ttl=30.0, poll=0.1, timeout=100.0)


class RememberingClock(SystemClock):
    """Records every sleep, and signals the first short one."""

    def __init__(self, looked: asyncio.Event) -> None:
        self.sleeps: list[float] = []
        self._looked = looked

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if seconds == PATIENT.poll:
            self._looked.set()
        await super().sleep(seconds)


@pytest.fixture
async def session(store: Store) -> str:
    return (await store.create_session("cli")).id


def hear_half(process: subprocess.Popen[str]) -> None:
    """Wait until the talker has written half of its reply."""
    while json.loads(hear(process))["type"] != "TextDelta":
        pass


async def until_held_on(store: Store, session: str, ttl: float) -> None:
    """Wait until the lane was held for longer than its lease, and has just been renewed."""
    lane, began = lanes.lease_name(SESSIONS, session), store.clock.now()

    def is_renewed(tx: Tx) -> bool:
        now = store.clock.now()
        lease = leases.holder(tx, lane, now=now)
        return now > began + ttl and lease is not None and lease.expires_at > now + 0.9 * ttl

    async with asyncio.timeout(60):
        while not await store.read(is_renewed):  # noqa: ASYNC110 - another process's lease gives no event
            await asyncio.sleep(0.01)


def events_of(output: str) -> list[Json]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.stress
@pytest.mark.contract("2.3")
async def test_many_turns_at_once_in_one_session_do_not_interleave(store: Store, session: str) -> None:
    def echo(number: int) -> ScriptedModel:
        return ScriptedModel(lambda request: Reply(text=f"re: {request.messages[-1]['content']}"), name=str(number))

    many = scale(6, 30)
    agents = [make_agent(store, session, echo(number)) for number in range(many)]
    endings = await asyncio.gather(*(take_turn(agent, f"message {n}") for n, agent in enumerate(agents)))
    assert all(isinstance(events[-1], Replied) for events in endings)
    said = await spoken(store, session)
    assert len(said) == 2 * many
    for (asker, asked), (speaker, reply) in zip(said[::2], said[1::2], strict=True):
        assert (asker, speaker, reply) == ("user", "assistant", f"re: {asked}")


async def test_a_lane_that_could_not_be_released_is_free_for_the_same_process(store: Store, session: str) -> None:
    impatient = LaneOptions(ttl=30.0, poll=0.01, timeout=0.05)
    async with await Store.open(store.db.path, clock=SystemClock(), lock_timeout=0.05) as hasty:
        with closing(sqlite3.connect(store.db.path, isolation_level=None)) as blocker:
            async with hold_lane(hasty, session, "ours", impatient):
                blocker.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            async with hold_lane(hasty, session, "ours too", impatient):
                with pytest.raises(SessionBusyError):
                    async with hold_lane(hasty, session, "ours", impatient):
                        pass


@pytest.mark.contract("2.3")
async def test_a_session_that_stays_busy_is_reported_after_the_timeout_and_stores_nothing(
    store: Store, session: str
) -> None:
    impatient = LaneOptions(ttl=30.0, poll=0.01, timeout=0.05)
    async with hold_lane(store, session, "someone:else", PATIENT):
        [last] = await take_turn(make_agent(store, session, ScriptedModel([]), terms=impatient), "hello")
        assert isinstance(last, Failed)
        assert last.kind == "busy"
        assert "another process" in last.message
        with pytest.raises(SessionBusyError):
            async with hold_lane(store, session, "a:third", impatient):
                pass
    assert await spoken(store, session) == []


@pytest.mark.contract("2.3")
async def test_lane_that_is_freed_is_taken_with_the_next_look(store: Store, session: str) -> None:
    looked = asyncio.Event()
    store.clock = clock = RememberingClock(looked)

    async def take() -> list[float]:
        async with hold_lane(store, session, "the:next", PATIENT):
            return list(clock.sleeps)

    async with hold_lane(store, session, "the:first", PATIENT):
        taking = asyncio.create_task(take())
        await looked.wait()
        clock.sleeps.clear()
    assert [seconds for seconds in await taking if seconds == PATIENT.poll] == [], "it looked more than once"


@pytest.mark.processes
@pytest.mark.contract("2.3", "2.6")
async def test_the_session_of_a_killed_process_continues_at_once(store: Store, session: str) -> None:
    process = start("tests.agent.talker", store.db.path, session, 600.0)
    hear_half(process)
    process.send_signal(signal.SIGKILL)
    await_end(process)
    store.clock = clock = RememberingClock(asyncio.Event())
    events = await take_turn(make_agent(store, session, ScriptedModel([Reply(text="here")])), "still there?")
    assert isinstance(events[-1], Replied)
    assert TERMS.poll not in clock.sleeps, "it waited for the lease of the dead"
    assert await spoken(store, session) == [
        ("user", "from the talker"),
        ("user", "still there?"),
        ("assistant", "here"),
    ]


@pytest.mark.processes
@pytest.mark.contract("2.3", "3.3")
async def test_a_process_that_slept_past_its_lease_fails_and_writes_nothing_more(store: Store, session: str) -> None:
    process = start("tests.agent.talker", store.db.path, session, 1.0)
    hear_half(process)
    await stop_between_writes(process, store.db.path)
    taken_over = await take_turn(make_agent(store, session, ScriptedModel([Reply(text="mine now")])), "my turn")
    assert isinstance(taken_over[-1], Replied)
    before = await spoken(store, session)
    process.send_signal(signal.SIGCONT)
    say(process, "go")
    output, errors = await asyncio.to_thread(await_end, process)
    assert errors == ""
    last = events_of(output)[-1]
    assert (last["type"], last["kind"]) == ("Failed", "busy")
    assert await spoken(store, session) == before
    assert before == [("user", "from the talker"), ("user", "my turn"), ("assistant", "mine now")]


@pytest.mark.processes
@pytest.mark.contract("2.3")
async def test_turn_longer_than_the_lease_keeps_its_lane(store: Store, session: str) -> None:
    process = start("tests.agent.talker", store.db.path, session, 2.0)
    hear_half(process)
    await until_held_on(store, session, 2.0)
    impatient = LaneOptions(ttl=30.0, poll=0.05, timeout=0.1)
    [last] = await take_turn(make_agent(store, session, ScriptedModel([]), terms=impatient), "let me in")
    assert isinstance(last, Failed)
    assert last.kind == "busy"
    say(process, "go")
    output, errors = await asyncio.to_thread(await_end, process)
    assert (process.returncode, errors) == (0, "")
    assert events_of(output)[-1]["type"] == "Replied"
    assert await spoken(store, session) == [("user", "from the talker"), ("assistant", "half whole")]
