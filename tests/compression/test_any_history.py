"""Any sequence of messages, compressions, failures and crashes: nothing is lost, hidden, doubled or reordered."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.compression.compressor import Request
from hermes.db.engine import Tx
from hermes.llm.events import Completed, ModelFailed, Reply
from hermes.store.store import Store
from hermes.types import Draft, ToolCall
from tests.compression.checks import check_store
from tests.compression.conversations import make_compressor
from tests.compression.hand_clock import HandClock
from tests.llm.scripted import ScriptedAnswer, ScriptedModel
from tests.scale import scale

T = TypeVar("T")
WINDOW = 1_500


class Crash(BaseException):
    """Raised to simulate the end of the process."""


class DyingStore:
    """A store whose process ends at its `at`-th write: before the commit, or right after."""

    def __init__(self, store: Store, at: int, committed: bool) -> None:
        self._store = store
        self._left = at
        self._committed = committed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, run: Callable[[Tx], T]) -> T:
        self._left -= 1
        if self._left == 0 and self._committed:
            await self._store.write(run)
        if self._left <= 0:
            raise Crash
        return await self._store.write(run)


@dataclass(frozen=True)
class Say:
    count: int


@dataclass(frozen=True)
class Compress:
    answer: str
    must_fit: bool
    late: int


@dataclass(frozen=True)
class Die:
    at: int
    committed: bool
    late: int


STEPS = st.one_of(
    st.builds(Say, st.integers(1, 12)),
    st.builds(Compress, st.sampled_from(["short", "", "500"]), st.booleans(), st.integers(0, 3)),
    st.builds(Die, st.integers(1, 3), st.booleans(), st.integers(0, 3)),
)


class World:
    """A store, and its expected content."""

    def __init__(self, store: Store, clock: HandClock, session_id: str) -> None:
        self.store = store
        self.clock = clock
        self.session_id = session_id
        self.said: list[str] = []
        self._numbers = count()

    async def say(self, amount: int) -> None:
        for _ in range(amount):
            number = next(self._numbers)
            drafts = [Draft("user", f"question {number} " + "x" * 80)]
            if number % 3 == 0:
                drafts += [
                    Draft("assistant", f"looking {number}", tool_calls=(ToolCall("c", "look", "{}"),)),
                    Draft("tool", f"found {number}", tool_call_id="c"),
                ]
            drafts.append(Draft("assistant", f"answer {number} " + "y" * 80))
            await self.store.append(self.session_id, *drafts)
            self.said += [draft.content or "" for draft in drafts]

    async def compress(self, store: Store, answer: str, late: int, request: Request) -> str:
        """Run one compression, with `late` messages that arrive while the model is asked."""
        asked, go_on = asyncio.Event(), asyncio.Event()

        def script(_: object) -> ScriptedAnswer:
            asked.set()
            end = ModelFailed("server", "500", retryable=True) if answer == "500" else Completed(Reply(answer))
            return [go_on, end]

        compressor = make_compressor(store, ScriptedModel(script, context_length=WINDOW), window=WINDOW)
        running = asyncio.ensure_future(compressor.compress(self.session_id, request))
        asking = asyncio.ensure_future(asked.wait())
        await asyncio.wait({running, asking}, return_when=asyncio.FIRST_COMPLETED)
        asking.cancel()
        if not running.done():
            await self.say(late)
        go_on.set()
        return (await running).outcome


async def live_through(path: Path, steps: list[Say | Compress | Die]) -> None:
    clock = HandClock()
    async with await Store.open(path, clock=clock, lock_timeout=10.0) as store:
        world = World(store, clock, (await store.create_session("test")).id)
        for step in steps:
            match step:
                case Say(amount):
                    await world.say(amount)
                case Compress(answer, must_fit, late):
                    outcome = await world.compress(store, answer, late, Request(must_fit=must_fit))
                    assert outcome in ("done", "skipped", "failed")
                case Die(at, committed, late):
                    dying = cast(Store, DyingStore(store, at, committed))
                    with suppress(Crash):  # it lives when there is nothing to compress
                        await world.compress(dying, "short", late, Request())
                    clock.advance(31.0)  # its lease ends
            assert await check_store(store, {world.session_id: world.said}) == []


@pytest.mark.stress
@pytest.mark.contract("3.4", "3.5", "1.5")
@settings(max_examples=scale(15, 1_000))
@given(st.lists(STEPS, min_size=1, max_size=8))
def test_view_and_snapshots_hold_everything_whatever_happens(steps: list[Say | Compress | Die]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live_through(Path(folder) / "state.db", [Say(10), *steps]))
