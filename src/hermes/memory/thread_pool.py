"""Threads for a provider's blocking calls (`asyncio.to_thread`): so many and no more; none keeps the process alive."""

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
    """Like its base, but Python waits for none of its threads when it ends, however long a call hangs. A thread ends
    when no call waits for it."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._guard = threading.Lock()
        self._at_work = 0
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn` in a thread as soon as one is free."""
        future: Future[T] = Future()
        with self._guard:
            if self._ended:
                raise RuntimeError("the provider's threads have ended")
            self._waiting.append((future, partial(fn, *args, **kwargs)))
            if self._at_work < self._most:
                self._at_work += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - nobody is waited for
        """Take no more calls; those at work end by themselves, or with the process."""
        with self._guard:
            self._ended = True
            while self._waiting:
                self._waiting.popleft()[0].cancel()

    def _work(self) -> None:
        while True:
            with self._guard:
                if not self._waiting:
                    self._at_work -= 1
                    return
                future, call = self._waiting.popleft()
            _run(future, call)


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - whoever awaits the future gets it
        future.set_exception(error)
    else:
        future.set_result(result)
