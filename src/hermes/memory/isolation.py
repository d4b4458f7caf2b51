"""A provider in a thread of its own: whatever it does, the host waits no longer than the deadline."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from hermes.errors import ProviderError
from hermes.memory.daemon_threads import DaemonThreads
from hermes.memory.provider import MemoryProvider

T = TypeVar("T")
log = logging.getLogger("hermes.memory")
LONGEST_REASON = 300
GRACE = 0.05
"""Seconds of a deadline that are left to a late hook to end when it is cancelled, so that the next can be asked."""
LAST_MOMENT = 0.2
"""Seconds that `close` waits for the thread."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The hook returned in time, and what it should."""

    value: T


@dataclass(frozen=True, slots=True)
class Missed:
    """The hook gave nothing that can be used. `reason` is one line; `skipped` when the hook was not even called."""

    reason: str
    skipped: bool = False


HookResult: TypeAlias = Answer[T] | Missed
Hook: TypeAlias = Callable[[MemoryProvider], Awaitable[T]]


class _Started(Generic[T]):
    """A hook under way in the provider's thread; `ended` is set when it has really ended, also after a cancel.

    It never holds an exception: nobody could be sure to fetch it.
    """

    def __init__(self, hook: str) -> None:
        self.hook = hook
        self.ended: Future[HookResult[T]] = Future()
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


class IsolatedProvider:
    """Makes a provider in its own thread and calls its hooks there, each within its caller's deadline."""

    def __init__(self, make: Callable[[], MemoryProvider]) -> None:
        self._make = make
        self._provider: MemoryProvider | None = None
        self._late: list[_Started[Any]] = []
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_log_stray)
        self._loop.set_default_executor(DaemonThreads())
        self._thread = threading.Thread(target=self._run, name="hermes-memory", daemon=True)
        self._thread.start()

    async def call(
        self, hook: str, run: Hook[T], *, expect: type[T] | tuple[type, ...], deadline: float
    ) -> HookResult[T]:
        """Call one hook. Never raises what the provider raised."""
        self._late = [late for late in self._late if not late.ended.done()]
        if self._late:
            return Missed(f"{hook} was skipped, {self._late[0].hook} has not come back", skipped=True)
        started: _Started[T] = _Started(hook)
        if not self._begin(started, run, expect):
            return Missed(f"{hook} was skipped, the provider's thread has ended", skipped=True)
        ended = asyncio.wrap_future(started.ended)
        grace = min(GRACE, deadline / 10)
        try:
            await asyncio.wait({ended}, timeout=deadline - grace)
        finally:
            late = not started.ended.done()
            blocking = self._blocking(started) if late else ""
            if late:
                self._abandon(started)
        if not late:
            return started.ended.result()
        await asyncio.wait({ended}, timeout=grace)
        return Missed(f"{hook} took longer than {deadline:.2g} s{blocking}")

    def close(self) -> None:
        """Stop the thread. One that hangs is left behind; it is a daemon and ends with the process."""
        self._tell(self._loop.stop)
        self._thread.join(timeout=LAST_MOMENT)

    def _begin(self, started: _Started[T], run: Hook[T], expect: type[T] | tuple[type, ...]) -> bool:
        async def call() -> None:
            result: HookResult[T] = Missed(f"{started.hook} was cancelled")
            try:
                result = _judge(started.hook, await run(self._made()), expect)
            except asyncio.CancelledError:
                pass  # it was told so by `_abandon`, or cancelled itself
            except BaseException as error:  # noqa: BLE001 - the seam: not even an exit in a hook may reach the host
                result = Missed(f"{started.hook} failed: {_describe(error)}")
            finally:
                started.ended.set_result(result)

        def begin() -> None:
            started.task = self._loop.create_task(call(), name=started.hook)

        return self._tell(begin)

    def _made(self) -> MemoryProvider:
        if self._provider is None:
            made: object = self._make()
            if not isinstance(made, MemoryProvider):
                raise ProviderError(f"what was made is a {type(made).__name__}, not a MemoryProvider", hint="")
            self._provider = made
        return self._provider

    def _abandon(self, started: _Started[T]) -> None:
        """Cancel a late hook; until it has really ended nothing else is asked of the provider."""
        self._late.append(started)
        self._tell(started.cancel)

    def _blocking(self, started: _Started[T]) -> str:
        """Which other hook holds the thread, if one does."""
        running = asyncio.current_task(self._loop)
        return (
            f", {running.get_name()} blocks its thread" if running is not None and running is not started.task else ""
        )

    def _tell(self, what: Callable[[], object]) -> bool:
        """Have the thread do something; False when it has ended."""
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while True:
            try:
                self._loop.run_forever()
                break
            except (SystemExit, KeyboardInterrupt) as error:  # out of a task that a hook left behind
                log.debug("memory provider's thread: %s was ignored", type(error).__name__)
        try:
            self._end_tasks()
        finally:
            self._loop.close()

    def _end_tasks(self) -> None:
        """Give what still runs one moment to end; what does not is let go."""
        if left := asyncio.all_tasks(self._loop):
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(left, timeout=LAST_MOMENT / 2))


def _judge(hook: str, value: T, expect: type[T] | tuple[type, ...]) -> HookResult[T]:
    return Answer(value) if isinstance(value, expect) else Missed(f"{hook} returned {_kind(value)}")


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__


def _describe(error: BaseException) -> str:
    """One line, whatever the provider put into its error."""
    if isinstance(error, ProviderError):
        return error.message
    try:
        said = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001 - the provider's own code again
        said = "(it cannot be described)"
    named = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return named if len(named) <= LONGEST_REASON else f"{named[: LONGEST_REASON - 1]}…"


def _log_stray(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What a provider's own tasks left behind: one line in the log, never a traceback on a person's screen."""
    error = context.get("exception")
    log.debug("memory provider's thread: %s %s", context.get("message"), _describe(error) if error else "")
