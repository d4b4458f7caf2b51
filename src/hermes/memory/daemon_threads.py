"""Threads for a provider's blocking calls (`asyncio.to_thread`) that never keep the process from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(ThreadPoolExecutor):
    """A thread per call. Those of a common pool are waited for when Python ends, however long they hang."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn` in a thread of its own."""
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - whoever awaits the future gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=work, name="hermes-memory-call", daemon=True).start()
        return future
