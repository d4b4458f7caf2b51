"""A plugin on a thread of its own: whatever it does, the host waits no longer than it wants to.

One thread and one event loop for all conversations of a process and profile. A hook that is late holds up the next
hook of the same line (a session's questions, one lane's deliveries) and nothing else.
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
THREAD = "hermes-memory"
"""How the names of threads that run a plugin's code begin."""
BLOCKING_CALLS = 16
"""Threads for what hooks hand to `asyncio.to_thread`."""
SPAWNED = 64
"""Tasks of the plugin's own that may run at a time."""
LONGEST_REASON = 300
GRACE = 0.05
"""Seconds of a deadline that are left to a late hook to end when it is cancelled, so that the next can be asked."""
LAST_MOMENT = 0.2
"""Seconds that `close` waits for the thread."""


class Returned(Struct, Generic[T], frozen=True):
    """The hook returned in time, and what it should."""

    value: T


class Missed(Struct, frozen=True):
    """The hook gave nothing that can be used. `reason` is one line; `skipped` when the hook was not even called,
    `defect` when it raised or returned what it should not."""

    reason: str
    skipped: bool = False
    defect: bool = False


HookResult: TypeAlias = Returned[T] | Missed
Hook: TypeAlias = Callable[[MemoryPlugin], Awaitable[T]]
Expected: TypeAlias = type[T] | tuple[type, ...]
"""What a hook is to return."""


class _Started(Generic[T]):
    """A hook under way in the plugin's thread; `ended` is set when it has really ended, also after a cancel.

    It never holds an exception: nobody could be sure to fetch it.
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
    """Standard output without what a plugin prints, which is logged: programs read what the host prints."""

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)

    def write(self, text: str) -> int:
        if not threading.current_thread().name.startswith(THREAD):
            return self._stdout.write(text)
        if line := text.strip():
            log.info("the memory provider printed: %s", line[:LONGEST_REASON])
        return len(text)


class PluginThread:
    """Makes a plugin in its own thread and calls its hooks there, each for as long as its caller wants to wait."""

    def __init__(self, make: Callable[[], MemoryPlugin]) -> None:
        self._make = make
        self._plugin: MemoryPlugin | None = None
        self._late: dict[str, _Started[Any]] = {}
        self._spawned: set[asyncio.Task[None]] = set()
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_log_stray)
        self._loop.set_default_executor(DaemonPool(BLOCKING_CALLS, f"{THREAD}-call"))
        if not isinstance(sys.stdout, _OwnOutput):
            sys.stdout = cast(TextIO, _OwnOutput(sys.stdout))
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._thread.start()

    async def call(self, hook: str, run: Hook[T], *, line: str, expect: Expected[T], seconds: float) -> HookResult[T]:
        """Call one hook; skipped while an earlier one of its `line` is out. Never raises what the plugin raised."""
        if (late := self._late.get(line)) is not None and not late.ended.done():
            return Missed(f"{hook} was skipped, {late.hook} has not come back", skipped=True)
        started: _Started[T] = _Started(hook)
        if not self._begin(started, run, expect):
            return Missed(f"{hook} was skipped, the provider's thread has ended", skipped=True)
        ended = asyncio.wrap_future(started.ended)
        grace = min(GRACE, seconds / 10)
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
        """Forget the lines of a session: nothing more will be called in them."""
        self._late = {line: late for line, late in self._late.items() if not line.endswith(f":{session_id}")}

    def _came_back(self, line: str, started: _Started[Any]) -> None:
        if self._late.get(line) is started:
            del self._late[line]

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task of the plugin's own on its loop. Called on the plugin's thread."""
        if len(self._spawned) >= SPAWNED:
            work.close()
            raise ProviderError(f"{SPAWNED} tasks of the provider run already, so {name} was not begun", hint="")
        task = self._loop.create_task(work, name=name)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    def close(self) -> None:
        """Stop the thread. One that hangs is left behind; it is a daemon and ends with the process."""
        self._closing = True
        self._tell(self._loop.stop)
        self._thread.join(timeout=LAST_MOMENT)

    def _begin(self, started: _Started[T], run: Hook[T], expect: Expected[T]) -> bool:
        async def call() -> HookResult[T]:
            try:
                return _judge(started.hook, await run(self._made()), expect)
            except asyncio.CancelledError:
                raise  # it was told so because it was late, or cancelled itself
            except ProviderError as error:  # in words of the plugin's, which need no name of a hook
                return Missed(describe(error), defect=True)
            except BaseException as error:  # noqa: BLE001 - the seam: not even an exit in a hook may reach the host
                return Missed(f"{started.hook} failed: {describe(error)}", defect=True)

        def begin() -> None:
            started.task = self._loop.create_task(call(), name=started.hook)
            started.task.add_done_callback(started.end)  # also of one that is cancelled before it could begin

        return self._tell(begin)

    def _made(self) -> MemoryPlugin:
        if self._plugin is None:
            made: object = self._make()
            if not isinstance(made, MemoryPlugin):
                raise ProviderError(f"what was made is a {type(made).__name__}, not a MemoryPlugin", hint="")
            self._plugin = made
        return self._plugin

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
                if self._closing:  # else a hook has stopped the loop
                    break
            except (SystemExit, KeyboardInterrupt) as error:  # out of a task that a hook left behind
                log.debug("memory provider's thread: %s was ignored", type(error).__name__)
        try:
            self._end_tasks()
        finally:
            self._loop.close()

    def _end_tasks(self) -> None:
        """Give what still runs one moment to end; what does not is let go. What was closed last gives up its socket."""
        if left := asyncio.all_tasks(self._loop):
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(left, timeout=LAST_MOMENT / 2))
        self._loop.run_until_complete(asyncio.sleep(0))


def describe(error: BaseException) -> str:
    """One line, whatever the provider put into its error."""
    if isinstance(error, HermesError):
        return error.message
    try:
        said = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001 - the provider's own code again
        said = "(it cannot be described)"
    named = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return named if len(named) <= LONGEST_REASON else f"{named[: LONGEST_REASON - 1]}…"


def _judge(hook: str, value: T, expect: Expected[T]) -> HookResult[T]:
    if isinstance(value, expect):
        return Returned(value)
    return Missed(f"{hook} returned {'nothing' if value is None else type(value).__name__}", defect=True)


def _log_stray(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What a provider's own tasks left behind: one line in the log, never a traceback on a person's screen."""
    error = context.get("exception")
    log.debug("memory provider's thread: %s %s", context.get("message"), describe(error) if error else "")
