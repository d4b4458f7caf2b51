"""A bounded pool of threads for a provider's blocking calls (`asyncio.to_thread`) that never keeps the process
alive."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonPool(ThreadPoolExecutor):
    """A thread pool whose threads do not delay the end of the process, however long a call hangs. Idle threads end at
    once."""

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._guard = threading.Lock()
        self._running = 0
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn` in a thread as soon as one is free."""
        future: Future[T] = Future()
        with self._guard:
            if self._ended:
                raise RuntimeError("the provider's threads have ended")
            self._waiting.append((future, partial(fn, *args, **kwargs)))
            if self._running < self._max_threads:
                self._running += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - never waits
        """Accept no more calls; running ones end by themselves, or with the process."""
        with self._guard:
            self._ended = True
            while self._waiting:
                self._waiting.popleft()[0].cancel()

    def _work(self) -> None:
        while True:
            with self._guard:
                if not self._waiting:
                    self._running -= 1
                    return
                future, call = self._waiting.popleft()
            _run(future, call)


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - the caller gets it from the future
        future.set_exception(error)
    else:
        future.set_result(result)
