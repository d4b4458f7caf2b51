"""Runs a plugin in a separate thread, so that the host never waits longer for it than it wants to.

One thread with one event loop serves all conversations of a process and profile. A late hook delays only later hooks
of the same line (the calls of a session, or the deliveries of a lane).
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TextIO, TypeAlias, TypeVar, cast

from msgspec import Struct

from hermes.errors import HermesError, ProviderError
from hermes.memory.provider import MemoryPlugin
from hermes.memory.thread_pool import DaemonPool

T = TypeVar("T")
log = logging.getLogger("hermes.memory")
THREAD_NAME = "hermes-memory"
"""The prefix of names of threads that run a plugin's code."""
MAX_BLOCKING_CALLS = 16
"""Limits the threads for `asyncio.to_thread` in hooks."""
MAX_SPAWNED_TASKS = 64
"""Limits the plugin's own background tasks."""
MAX_ERROR_CHARS = 300
CANCEL_GRACE_SECONDS = 0.05
"""The part of a deadline in which a cancelled late hook may end, so that the line is free again."""
CLOSE_TIMEOUT_SECONDS = 0.2
"""How long `close` waits for the thread."""


class Returned(Struct, Generic[T], frozen=True):
    """The result of a hook that returned a valid value in time."""

    value: T


class Missed(Struct, frozen=True):
    """A failed hook. `reason` is one line; `skipped` means that the hook was not called, `defect` that it raised or
    returned an invalid value."""

    reason: str
    skipped: bool = False
    defect: bool = False


HookResult: TypeAlias = Returned[T] | Missed
Hook: TypeAlias = Callable[[MemoryPlugin], Awaitable[T]]
Expected: TypeAlias = type[T] | tuple[type, ...]
"""The type or types that a hook must return."""


class _Started(Generic[T]):
    """A hook running in the plugin's thread. `ended` is set once it has really ended, also after a cancellation.

    It never holds an exception, since nobody is sure to retrieve it.
    """

    def __init__(self, hook: str) -> None:
        self.hook = hook
        self.ended: Future[HookResult[T]] = Future()
        self.task: asyncio.Task[HookResult[T]] | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def end(self, task: asyncio.Task[HookResult[T]]) -> None:
        self.ended.set_result(Missed(f"{self.hook} was cancelled") if task.cancelled() else task.result())


class _OwnOutput:
    """Standard output that logs a plugin's prints instead: programs parse the host's output."""

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)

    def write(self, text: str) -> int:
        if not threading.current_thread().name.startswith(THREAD_NAME):
            return self._stdout.write(text)
        if line := text.strip():
            log.info("the memory provider printed: %s", line[:MAX_ERROR_CHARS])
        return len(text)


class PluginThread:
    """Creates a plugin in its own thread and calls its hooks there, each for a limited time."""

    def __init__(self, make: Callable[[], MemoryPlugin]) -> None:
        self._make = make
        self._plugin: MemoryPlugin | None = None
        self._late: dict[str, _Started[Any]] = {}
        self._spawned: set[asyncio.Task[None]] = set()
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_log_stray)
        self._loop.set_default_executor(DaemonPool(MAX_BLOCKING_CALLS, f"{THREAD_NAME}-call"))
        if not isinstance(sys.stdout, _OwnOutput):
            sys.stdout = cast(TextIO, _OwnOutput(sys.stdout))
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    async def call(self, hook: str, run: Hook[T], *, line: str, expect: Expected[T], seconds: float) -> HookResult[T]:
        """Call one hook, or skip it while an earlier hook of its `line` is running. Never raises the plugin's
        errors."""
        if (late := self._late.get(line)) is not None and not late.ended.done():
            return Missed(f"{hook} was skipped, {late.hook} has not come back", skipped=True)
        started: _Started[T] = _Started(hook)
        if not self._begin(started, run, expect):
            return Missed(f"{hook} was skipped, the provider's thread has ended", skipped=True)
        ended = asyncio.wrap_future(started.ended)
        grace = min(CANCEL_GRACE_SECONDS, seconds / 10)
        try:
            await asyncio.wait({ended}, timeout=seconds - grace)
        finally:
            late_now = not started.ended.done()
            blocking = self._blocking(started) if late_now else ""
            if late_now:
                self._late[line] = started
                ended.add_done_callback(lambda _: self._came_back(line, started))
                self._tell(started.cancel)
        if not late_now:
            return started.ended.result()
        await asyncio.wait({ended}, timeout=grace)
        return Missed(f"{hook} took longer than {seconds:.2g} s{blocking}")

    def forget(self, session_id: str) -> None:
        """Drop the lines of a closed session."""
        self._late = {line: late for line, late in self._late.items() if not line.endswith(f":{session_id}")}

    def _came_back(self, line: str, started: _Started[Any]) -> None:
        if self._late.get(line) is started:
            del self._late[line]

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a background task of the plugin on its loop. Must be called in the plugin's thread."""
        if len(self._spawned) >= MAX_SPAWNED_TASKS:
            work.close()
            raise ProviderError(
                f"{MAX_SPAWNED_TASKS} tasks of the provider run already, so {name} was not begun", hint=""
            )
        task = self._loop.create_task(work, name=name)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    def close(self) -> None:
        """Stop the thread. A hanging thread is abandoned; it is a daemon and ends with the process."""
        self._closing = True
        self._tell(self._loop.stop)
        self._thread.join(timeout=CLOSE_TIMEOUT_SECONDS)

    def _begin(self, started: _Started[T], run: Hook[T], expect: Expected[T]) -> bool:
        async def call() -> HookResult[T]:
            try:
                return _check_result(started.hook, await run(self._made()), expect)
            except asyncio.CancelledError:
                raise  # cancelled because it was late, or by itself
            except ProviderError as error:  # the plugin's own wording needs no hook name
                return Missed(describe(error), defect=True)
            except BaseException as error:  # noqa: BLE001 - not even an exit in a hook may reach the host
                return Missed(f"{started.hook} failed: {describe(error)}", defect=True)

        def begin() -> None:
            started.task = self._loop.create_task(call(), name=started.hook)
            started.task.add_done_callback(started.end)  # called even if it is cancelled before it starts

        return self._tell(begin)

    def _made(self) -> MemoryPlugin:
        if self._plugin is None:
            made: object = self._make()
            if not isinstance(made, MemoryPlugin):
                raise ProviderError(f"what was made is a {type(made).__name__}, not a MemoryPlugin", hint="")
            self._plugin = made
        return self._plugin

    def _blocking(self, started: _Started[T]) -> str:
        """Name another hook that blocks the thread, if there is one."""
        running = asyncio.current_task(self._loop)
        return (
            f", {running.get_name()} blocks its thread" if running is not None and running is not started.task else ""
        )

    def _tell(self, what: Callable[[], object]) -> bool:
        """Run a function in the thread. Return False if the thread has ended."""
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
                if self._closing:  # otherwise a hook stopped the loop
                    break
            except (SystemExit, KeyboardInterrupt) as error:  # raised by a task that a hook left behind
                log.debug("memory provider's thread: %s was ignored", type(error).__name__)
        try:
            self._end_tasks()
        finally:
            self._loop.close()

    def _end_tasks(self) -> None:
        """Cancel remaining tasks and give them a moment to end; the last iteration lets closed sockets go."""
        if left := asyncio.all_tasks(self._loop):
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(left, timeout=CLOSE_TIMEOUT_SECONDS / 2))
        self._loop.run_until_complete(asyncio.sleep(0))


def describe(error: BaseException) -> str:
    """Describe an error in one line, even if its own text cannot be read."""
    if isinstance(error, HermesError):
        return error.message
    try:
        said = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001 - the provider's own code again
        said = "(it cannot be described)"
    named = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return named if len(named) <= MAX_ERROR_CHARS else f"{named[: MAX_ERROR_CHARS - 1]}…"


def _check_result(hook: str, value: T, expect: Expected[T]) -> HookResult[T]:
    if isinstance(value, expect):
        return Returned(value)
    return Missed(f"{hook} returned {'nothing' if value is None else type(value).__name__}", defect=True)


def _log_stray(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors of a provider's own tasks in one line, never as a traceback on a person's screen."""
    error = context.get("exception")
    log.debug("memory provider's thread: %s %s", context.get("message"), describe(error) if error else "")
