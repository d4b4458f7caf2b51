"""Process settings for serving memory, made before anything large is loaded."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from contextlib import suppress

SWITCH_SECONDS = 0.001
"""Interval at which Python switches threads: short, so that long computations do not delay requests."""
M_ARENA_MAX_CODE = -8
"""glibc's mallopt parameter for the number of heaps."""


def set_up_process() -> None:
    """Configure the process: few threads, one heap, short thread switches, and no garbage collection until
    `end_loading`."""
    gc.disable()
    # A vector is multiplied faster than threads wake up, and each thread would take memory.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.setswitchinterval(SWITCH_SECONDS)
    # glibc keeps freed memory in a heap per thread; our threads take turns, so one heap is enough.
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX_CODE, 1)


def end_loading() -> None:
    """Exclude everything loaded so far from garbage collection, and turn it on: a start and a request cost less."""
    gc.freeze()
    gc.enable()
