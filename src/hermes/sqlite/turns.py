"""Fair order among readers: those who usually ask for little go first; slow work goes one at a time, with pauses."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
LITTLE = 0.01
"""Who uses up to so many seconds of processor time on average counts as asking for little."""
NEWEST = 0.2
"""The weight of the newest request in an asker's running average."""
TURN = 0.002
"""Seconds that slow work runs before it pauses for others."""
LOOK = 0.02
"""While waiting for a turn, so many seconds pass between two checks whether the work was cancelled."""


class Asker:
    """One who asks again and again, such as a connection."""

    def __init__(self) -> None:
        self._usual = 0.0

    def took(self, seconds: float) -> None:
        """So much of a processor was the last request."""
        self._usual += NEWEST * (seconds - self._usual)

    @property
    def rank(self) -> int:
        """0 for who asks for little, one more each time that it doubles."""
        return int(self._usual / LITTLE).bit_length()


asker: ContextVar[Asker | None] = ContextVar("asker", default=None)
"""Who is being answered; None for ourselves."""


class Threads:
    """Threads that take what waits, the lowest rank first. They begin with the first that is handed over."""

    def __init__(self, count: int, name: str, together: float = 0.0) -> None:
        """`together`: seconds that an answer may wait for the next one, so that the loop is woken once for both. Each
        time it wakes, it and the threads wait for each other at Python's global lock."""
        self._together = together
        self._waiting: list[_QueuedRead] = []
        """A heap."""
        self._news: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """True for each that waits, False for each thread that is to end."""
        self._numbers = itertools.count()
        self._threads = [threading.Thread(target=self._work, name=f"{name}_{number}") for number in range(count)]
        self._guard = threading.Lock()
        self._begun = self._ended = False

    async def run(self, run: Callable[[], T], rank: int) -> T:
        """What `run` returns, in one of the threads. Cancelled before it was begun, it is not run."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        with self._guard:
            if self._ended:
                raise RuntimeError("the threads have ended")
            if not self._begun:
                self._begun = True
                for thread in self._threads:
                    thread.start()
            # Not later: whoever ends the threads meanwhile would leave it waiting for ever.
            heapq.heappush(self._waiting, (rank, next(self._numbers), loop, done, run))
            self._news.put(True)
        return await done

    def end(self) -> None:
        """Do what was handed over, then end. Twice is fine."""
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
        ready: list[_Answer] = []
        while self._wait(ready):
            with self._guard:
                *_, loop, done, run = heapq.heappop(self._waiting)
            if not done.cancelled():
                ready.append((loop, partial(_fulfil, done, *_do(run, done)), time.perf_counter()))
            del loop, done, run  # what they hold must not live until the next one comes
        _hand_back(ready)

    def _wait(self, ready: list[_Answer]) -> bool:
        """Wait for the next, and hand back what is ready unless the next comes at once. False when all is over."""
        if ready and self._may_wait(since=ready[0][2]):
            with suppress(queue.Empty):
                return self._news.get_nowait()
        if ready:
            _hand_back(ready)
        return self._news.get()

    def _may_wait(self, since: float) -> bool:
        """May an answer wait for the next? Only for one who usually asks for little."""
        with self._guard:
            is_little = bool(self._waiting) and self._waiting[0][0] == 0
        return is_little and time.perf_counter() - since < self._together


_QueuedRead = tuple[int, int, asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]
_Answer = tuple[asyncio.AbstractEventLoop, Callable[[], None], float]
"""Where it is waited for, what tells it there, and when it was found."""


def _do(run: Callable[[], T], done: asyncio.Future[T]) -> tuple[Callable[[Any], None], Any]:
    try:
        return done.set_result, run()
    except BaseException as error:  # noqa: BLE001 - handed to the caller
        return done.set_exception, error


def _hand_back(ready: list[_Answer]) -> None:
    for loop, answer, _ in ready:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(answer)
    ready.clear()


def _fulfil(done: asyncio.Future[Any], tell: Callable[[Any], None], result: Any) -> None:
    if not done.done():
        tell(result)


class Turns:
    """Slow work is done by one at a time. `others` tells whether anybody else wants to go on."""

    def __init__(self, others: Callable[[], bool]) -> None:
        self._others = others
        self._lock = threading.Lock()

    def take(self, share: int, is_over: Callable[[], bool]) -> Turn:
        """Wait for a turn, or until `is_over` says that nobody wants the result. With a `share` of 2 the work pauses
        twice as long as it runs."""
        turn = Turn(self._lock, self._others, share, is_over)
        turn.take()
        return turn


class Turn:
    """The turn of one who works slowly, in its thread."""

    def __init__(
        self, lock: threading.Lock, others: Callable[[], bool], share: int, is_over: Callable[[], bool]
    ) -> None:
        self._lock, self._others, self._share, self._is_over = lock, others, share, is_over
        self._has = False
        self._since = 0.0

    def give_way(self) -> None:
        """Let others go on, when this one worked for a while."""
        worked = time.perf_counter() - self._since
        if worked > TURN and self._others():
            self.leave()
            time.sleep(self._share * worked)
            self.take()

    def take(self) -> None:
        while not self._has and not self._is_over():
            self._has = self._lock.acquire(timeout=LOOK)
        self._since = time.perf_counter()

    def leave(self) -> None:
        if self._has:
            self._has = False
            self._lock.release()
