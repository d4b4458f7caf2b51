"""Long computations run in a thread, and clients with little work do not wait behind those with much."""

from __future__ import annotations

import asyncio
import threading
from typing import IO

import pytest

from hermes.memory_server import tokens
from hermes.memory_server.engine.messages import MessageDraft, prepare_drafts
from hermes.memory_server.threads import compute
from hermes.sqlite.scheduling import ScheduledClient, scheduled_client
from tests.memory_server.floor import EMBEDDER


@pytest.mark.contract("9.15")
async def test_who_asks_for_little_is_served_before_those_who_ask_for_much() -> None:
    heavy, light = ScheduledClient(), ScheduledClient()
    heavy.took(10.0)
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def hold() -> None:
        begun.set()
        go_on.wait(200)

    async def ask(who: ScheduledClient, name: str) -> None:
        scheduled_client.set(who)
        await compute(done.append, name)

    async with asyncio.timeout(100), asyncio.TaskGroup() as asking:
        asking.create_task(compute(hold))
        assert await asyncio.to_thread(begun.wait, 60)
        for who, name in ((heavy, "first heavy"), (heavy, "second heavy"), (light, "light")):
            asking.create_task(ask(who, name))
            await asyncio.sleep(0)
        go_on.set()
    assert done == ["light", "first heavy", "second heavy"]


async def test_the_token_vocabulary_is_loaded_off_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers: list[threading.Thread] = []

    class Watched(tokens.Vocabulary):
        def __init__(self, file: IO[bytes]) -> None:
            readers.append(threading.current_thread())
            super().__init__(file)

    monkeypatch.setattr(tokens, "Vocabulary", Watched)
    tokens._load_vocabulary.cache_clear()
    tokens._counts.clear()
    [draft] = await prepare_drafts(EMBEDDER, [MessageDraft("I keep bees.", "ann")])
    assert draft.token_count == tokens.count_tokens("I keep bees.") > 0
    assert [reader is threading.main_thread() for reader in readers] == [False]
