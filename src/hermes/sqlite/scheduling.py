"""Fair scheduling of reads: light clients go first; slow reads run one at a time and pause for others.

Results of worker threads, returned to the event loops of their callers.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
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


LIGHT_CPU_SECONDS = 0.01
"""Maximum average CPU time per request of a light client."""
NEWEST_WEIGHT = 0.2
"""Weight of the newest request in a client's running average of CPU time."""
TURN_SECONDS = 0.002
"""Time that a slow read runs before it pauses for others."""
CANCEL_CHECK_SECONDS = 0.02
"""Time between two checks whether a slow read that waits for its turn was cancelled."""


class ScheduledClient:
    """A client that sends requests again and again, such as a connection, with its average CPU time per request."""

    def __init__(self) -> None:
        self._usual = 0.0

    def took(self, seconds: float) -> None:
        """Record the CPU seconds of the last request."""
        self._usual += NEWEST_WEIGHT * (seconds - self._usual)

    @property
    def rank(self) -> int:
        """0 for light clients, plus 1 for each doubling of average CPU time. Lower goes first."""
        return int(self._usual / LIGHT_CPU_SECONDS).bit_length()


scheduled_client: ContextVar[ScheduledClient | None] = ContextVar("asker", default=None)
"""The client whose request is being handled; None for our own reads."""


class Threads:
    """A thread pool that runs the lowest rank first; started by the first call."""

    def __init__(self, count: int, name: str, together: float = 0.0) -> None:
        """`together`: seconds that a finished result may wait for the next one, to be returned with it."""
        self._together = together
        self._waiting: list[_QueuedRead] = []
        """A heap of the waiting calls, by rank and order of arrival."""
        self._news: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """One True for each waiting call, one False for each thread that must end."""
        self._numbers = itertools.count()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}_{number}", daemon=True) for number in range(count)
        ]
        self._guard = threading.Lock()
        self._begun = self._ended = False

    async def run(self, run: Callable[[], T], rank: int) -> T:
        """Return the result of `run` in one of the threads. If this is cancelled before a thread took it, it never
        runs."""
        answer = awaited_result()
        self.submit(run, rank, answer)
        done: asyncio.Future[T] = answer.caller
        return await done

    def submit(self, run: Callable[[], object], rank: int, answer: ThreadResult) -> None:
        """Queue a call whose result `answer` receives."""
        with self._guard:
            if self._ended:
                raise RuntimeError("the threads have ended")
            if not self._begun:
                self._begun = True
                for thread in self._threads:
                    thread.start()
            # Inside the guard: if `end` ran before the push, no thread would ever take this call.
            heapq.heappush(self._waiting, (rank, next(self._numbers), answer, run))
            self._news.put(True)

    def end(self) -> None:
        """Finish queued work, then stop. Safe to call twice."""
        with self._guard:
            first, self._ended = not self._ended, True
        if not self._begun:
            return
        if first:
            for _ in self._threads:
                self._news.put(False)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        ready: list[ThreadResult] = []
        since = 0.0
        while self._wait(ready, since):
            with self._guard:
                *_, answer, run = heapq.heappop(self._waiting)
            if not answer.caller.cancelled():
                answer.work_out(run)
                since = since if ready else time.perf_counter()
                ready.append(answer)
            del answer, run  # else this thread would keep their objects alive until the next call
        hand_back(ready)

    def _wait(self, ready: list[ThreadResult], since: float) -> bool:
        """Wait for the next call; return results first unless it is there already. Return False if the thread must
        end."""
        if ready and self._may_wait(since):
            with suppress(queue.Empty):
                return self._news.get_nowait()
        if ready:
            hand_back(ready)
            ready.clear()
        return self._news.get()

    def _may_wait(self, since: float) -> bool:
        """Return True if results may wait: the next call is a light client's, and less than `together` seconds have
        passed."""
        with self._guard:
            is_little = bool(self._waiting) and self._waiting[0][0] == 0
        return is_little and time.perf_counter() - since < self._together


_QueuedRead = tuple[int, int, ThreadResult, Callable[[], Any]]
MAX_GROUPED_CALLS = 128


class GroupedCall(Struct):
    """A call that may run together with others of its group."""

    run: Callable[[Any], Any]
    answer: ThreadResult
    who: ScheduledClient | None

    def run_with(self, tx: Any) -> Any:
        """Run the call, and count its CPU time for its client."""
        begun = time.thread_time()
        try:
            return self.run(tx)
        finally:
            if self.who is not None:
                self.who.took(time.thread_time() - begun)


class CallGroups:
    """Groups of calls. One thread at a time works on a group and takes all calls that wait; between two batches other
    work has its turn."""

    def __init__(self, threads: Threads, work: Callable[[Sequence[GroupedCall]], int]) -> None:
        """`work` stores results in the first calls of a batch and returns their number; it must not raise."""
        self._threads, self._work = threads, work
        self._waiting: dict[str, list[GroupedCall]] = {}
        """The waiting calls of each group that a thread works on, or will."""
        self._guard = threading.Lock()

    async def run(self, group: str, run: Callable[[Any], T]) -> T:
        """Return the result of `run`, which a thread runs with the others that wait in this group."""
        call = GroupedCall(run, awaited_result(), scheduled_client.get())
        with self._guard:
            if group in self._waiting:
                self._waiting[group].append(call)
            else:
                self._submit(group, call)
                self._waiting[group] = [call]
        done: asyncio.Future[T] = call.answer.caller
        return await done

    def _submit(self, group: str, first: GroupedCall) -> None:
        loop = first.answer.loop
        self._threads.submit(partial(self._run_batch, group), 0, ThreadResult(loop, loop.create_future()))

    def _run_batch(self, group: str) -> None:
        """Run the calls that wait. If more came meanwhile, queue up again behind other work."""
        while batch := self._take(group):
            wanted = [call for call in batch if not call.answer.caller.cancelled()]
            done = self._work(wanted)
            hand_back([call.answer for call in wanted[:done]])
            with self._guard:
                self._waiting[group][:0] = wanted[done:]
                if not self._waiting[group]:
                    del self._waiting[group]
                    return
                with suppress(RuntimeError):  # the threads are ending: this one does the rest
                    self._submit(group, self._waiting[group][0])
                    return

    def _take(self, group: str) -> list[GroupedCall]:
        with self._guard:
            waiting = self._waiting[group]
            batch = waiting[:MAX_GROUPED_CALLS]
            del waiting[:MAX_GROUPED_CALLS]
            return batch


class Turn:
    """The turn of one slow read, used in its thread: one read at a time among those that share a lock."""

    def __init__(
        self, lock: threading.Lock, others: Callable[[], bool], share: int, is_over: Callable[[], bool]
    ) -> None:
        """`others` returns True while other work waits. With a `share` of 2 the read pauses twice as long as it
        runs."""
        self._lock, self._others, self._share, self._is_over = lock, others, share, is_over
        self._has = False
        self._since = 0.0

    def give_way(self) -> None:
        """Pause for others if this read has run for longer than `TURN_SECONDS` seconds."""
        worked = time.perf_counter() - self._since
        if worked > TURN_SECONDS and self._others():
            self.leave()
            time.sleep(self._share * worked)
            self.take()

    def take(self) -> None:
        """Wait for the turn, or until `is_over` returns True because nobody wants the result."""
        while not self._has and not self._is_over():
            self._has = self._lock.acquire(timeout=CANCEL_CHECK_SECONDS)
        self._since = time.perf_counter()

    def leave(self) -> None:
        if self._has:
            self._has = False
            self._lock.release()
