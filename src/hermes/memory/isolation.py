"""A provider in a thread of its own: whatever it does, the host waits no longer than the deadline."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from hermes.memory.provider import MemoryProvider

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The hook returned in time, and what it should."""

    value: T


@dataclass(frozen=True, slots=True)
class Missed:
    """The hook gave nothing that can be used. `reason` is one line."""

    reason: str
    late: bool = False


HookResult: TypeAlias = Answer[T] | Missed
Hook: TypeAlias = Callable[[MemoryProvider], Awaitable[T]]


class _Started(Generic[T]):
    """A hook under way in the provider's thread; `ended` is set when it has really ended, also after a cancel."""

    def __init__(self) -> None:
        self.ended: Future[T] = Future()
        self.task: asyncio.Task[T] | None = None

    def finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.ended.set_exception(TimeoutError("cancelled"))
        elif (error := task.exception()) is not None:
            self.ended.set_exception(error)
        else:
            self.ended.set_result(task.result())

    def cancel(self) -> None:
        assert self.task is not None, "it was begun in the same loop before"
        self.task.cancel()


class IsolatedProvider:
    """Makes a provider in its own thread and calls its hooks there, one caller's deadline at a time."""

    def __init__(self, make: Callable[[], MemoryProvider]) -> None:
        self._make = make
        self._provider: MemoryProvider | None = None
        self._loop = asyncio.new_event_loop()
        self._stuck_in: str | None = None
        self._thread = threading.Thread(target=self._run, name="hermes-memory", daemon=True)
        self._thread.start()

    async def call(
        self, hook: str, run: Hook[T], *, expect: type[T] | tuple[type, ...], deadline: float
    ) -> HookResult[T]:
        """Call one hook. Never raises what the provider raised."""
        if self._stuck_in is not None:
            return Missed(f"{hook} was skipped, {self._stuck_in} has not come back", late=True)
        started = self._start(run)
        try:
            await asyncio.wait({asyncio.wrap_future(started.ended)}, timeout=deadline)
        finally:
            if not started.ended.done():
                self._abandon(hook, started)
        if not started.ended.done():
            return Missed(f"{hook} took longer than {deadline:g} s", late=True)
        return _judge(hook, started.ended, expect)

    def close(self) -> None:
        """Stop the thread. One that hangs is left behind; it is a daemon and ends with the process."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=0.2)

    def _start(self, run: Hook[T]) -> _Started[T]:
        started: _Started[T] = _Started()

        async def call() -> T:
            if self._provider is None:
                self._provider = self._make()
            return await run(self._provider)

        def begin() -> None:
            started.task = self._loop.create_task(call())
            started.task.add_done_callback(started.finish)

        self._loop.call_soon_threadsafe(begin)
        return started

    def _abandon(self, hook: str, started: _Started[T]) -> None:
        """Cancel a late hook; until it has really ended nothing else is asked of the provider."""
        self._stuck_in = hook
        started.ended.add_done_callback(lambda _: setattr(self, "_stuck_in", None))
        self._loop.call_soon_threadsafe(started.cancel)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


def _judge(hook: str, ended: Future[T], expect: type[T] | tuple[type, ...]) -> HookResult[T]:
    error = ended.exception()
    if error is not None:
        return Missed(f"{hook} failed: {type(error).__name__}: {error}")
    value = ended.result()
    if not isinstance(value, expect):
        return Missed(f"{hook} returned {type(value).__name__}")
    return Answer(value)
