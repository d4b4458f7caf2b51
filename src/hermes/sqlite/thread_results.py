"""Results of worker threads, returned to the event loops of their callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct

T = TypeVar("T")


class ThreadResult(Struct):
    """A call's result or error, and its waiting caller."""

    loop: asyncio.AbstractEventLoop
    caller: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None

    def work_out(self, run: Callable[[], object]) -> None:
        """Store the return value of `run`, or its exception."""
        try:
            self.result = run()
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            self.error = error


def awaited_result() -> ThreadResult:
    """Return an empty result for the caller in the running event loop."""
    loop = asyncio.get_running_loop()
    return ThreadResult(loop, loop.create_future())


def hand_back(results: Sequence[ThreadResult]) -> None:
    """Give each caller its result. A loop wakes once for all of its results: each wake-up makes it compete with the
    threads for Python's global lock (GIL)."""
    loops: dict[asyncio.AbstractEventLoop, list[ThreadResult]] = {}
    for result in results:
        loops.setdefault(result.loop, []).append(result)
    for loop, its in loops.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_fulfil, its)


def _fulfil(results: Sequence[ThreadResult]) -> None:
    for result in results:
        if result.caller.done():  # cancelled meanwhile
            continue
        if result.error is not None:
            result.caller.set_exception(result.error)
        else:
            result.caller.set_result(result.result)
