"""A plugin's thread: late hooks, what they delay, and their end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from hermes.memory.plugin_thread import Missed, PluginThread, Returned
from tests.memory.providers import Recorder


@pytest.fixture
async def thread() -> AsyncIterator[PluginThread]:
    made = PluginThread(Recorder)
    yield made
    made.close()


async def answer(_: object) -> str:
    return "here"


async def came_back(thread: PluginThread) -> None:
    """Wait until no hook is late."""
    async with asyncio.timeout(60):
        while thread._late:  # noqa: ASYNC110 - another thread ends it
            await asyncio.sleep(0.01)


async def test_hooks_behind_one_that_blocks_the_thread_are_asked_again_when_it_is_free(thread: PluginThread) -> None:
    free = threading.Event()

    async def block(_: object) -> str:
        free.wait(200)
        return "late"

    calls = {"a": block, "b": answer, "c": answer}
    for line, hook in calls.items():
        assert isinstance(await thread.call("recall", hook, line=line, expect=str, seconds=0.1), Missed)
    assert set(thread._late) == {"a", "b", "c"}
    free.set()
    await came_back(thread)
    for line in calls:
        assert await thread.call("recall", answer, line=line, expect=str, seconds=60) == Returned("here")


async def test_a_hook_that_ignores_being_cancelled_holds_up_its_own_line_until_it_ends(thread: PluginThread) -> None:
    begun, free = threading.Event(), asyncio.Event()

    async def stubborn(_: object) -> str:
        begun.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    calling = asyncio.create_task(thread.call("recall", stubborn, line="a", expect=str, seconds=200))
    assert await asyncio.to_thread(begun.wait, 60)
    calling.cancel()
    await asyncio.wait({calling})
    skipped = await thread.call("close", answer, line="a", expect=str, seconds=60)
    assert skipped == Missed("close was skipped, recall has not come back", skipped=True)
    assert await thread.call("recall", answer, line="b", expect=str, seconds=60) == Returned("here")
    thread._tell(free.set)
    await came_back(thread)
    assert await thread.call("recall", answer, line="a", expect=str, seconds=60) == Returned("here")


async def test_a_call_whose_caller_is_cancelled_is_cancelled_and_its_line_is_free_again(thread: PluginThread) -> None:
    begun = threading.Event()

    async def hang(_: object) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    calling = asyncio.create_task(thread.call("recall", hang, line="a", expect=str, seconds=60))
    await asyncio.to_thread(begun.wait, 60)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await came_back(thread)
    assert await thread.call("recall", answer, line="a", expect=str, seconds=60) == Returned("here")


async def test_a_hook_that_stops_the_loop_ends_no_memory(thread: PluginThread) -> None:
    async def stop(_: object) -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return "stopped"

    assert await thread.call("recall", stop, line="a", expect=str, seconds=60) == Returned("stopped")
    assert await thread.call("recall", answer, line="a", expect=str, seconds=60) == Returned("here")


async def test_a_thread_that_has_ended_is_reported(thread: PluginThread) -> None:
    thread.close()
    found = await thread.call("recall", answer, line="a", expect=str, seconds=60)
    assert found == Missed("recall was skipped, the provider's thread has ended", skipped=True)
