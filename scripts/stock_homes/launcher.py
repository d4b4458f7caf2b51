"""Runs inside the environment of a stock Hermes: its command line, with a kill at one of its durable steps.

`STOCK_KILL` is `STEP:WHEN:COUNT`: the process ends with SIGKILL right before or after the COUNT-th call of that step
since a compression took its lock. It leaves a file `stock.killed` in the home that says so.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

LOCK = "try_acquire_compression_lock"


class Trap:
    """Kills the process at one call of one step."""

    def __init__(self, store: Any, step: str, when: str, count: int) -> None:
        self._step, self._when, self._count = step, when, count
        self._locked, self._calls = False, 0
        for name in {LOCK, step}:
            setattr(store, name, self._wrap(name, getattr(store, name)))

    def _wrap(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._locked = self._locked or name == LOCK
            due = name == self._step and self._locked
            self._calls += due
            hit = due and self._calls == self._count
            if hit and self._when == "before":
                self._end()
            result = original(*args, **kwargs)
            if hit:
                self._end()
            return result

        return counted

    def _end(self) -> None:
        Path(os.environ["HERMES_HOME"], "stock.killed").write_text(f"{self._when} {self._step}", encoding="utf-8")
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if order := os.environ.get("STOCK_KILL"):
        wanted, moment, number = order.split(":")
        Trap(import_module("hermes_state").SessionDB, wanted, moment, int(number))
    sys.exit(import_module("hermes_cli.main").main())
