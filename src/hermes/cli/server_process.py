"""How a process that serves memory is set up, before anything large is loaded."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from contextlib import suppress

SWITCH_SECONDS = 0.001
"""How long a thread computes before another has its turn: requests are answered between turns of what takes long."""
M_ARENA_MAX = -8
"""The name that glibc's mallopt has for the number of heaps."""


def set_up_process() -> None:
    """Few threads, one heap, short turns; and no search for garbage until everything is loaded."""
    gc.disable()
    # A vector is multiplied faster than threads can be woken for it, and each would take memory of its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.setswitchinterval(SWITCH_SECONDS)
    # glibc gives each thread a heap that keeps what was freed; ours take turns and need one. Elsewhere: nothing.
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def end_loading() -> None:
    """What is loaded by now stays, and is never looked at in search of garbage: a start and a request cost less."""
    gc.freeze()
    gc.enable()
