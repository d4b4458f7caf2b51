"""The background memory server of a folder: `python -m hermes.cli.memory_background HOME FOLDER`.

A separate program that loads none of the command line, so it starts faster. `hermes memory start` starts it, and so
does any process that needs memory. Its process settings are made before anything large is loaded.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from hermes.embedded.process import look
from hermes.embedded.rendezvous import Place, read_rendezvous, try_lock
from hermes.errors import HermesError, MemoryServerError

START_LOCK_TIMEOUT_SECONDS = 30.0
"""How long to wait for an ending server to release the folder."""
LOCK_RETRY_SECONDS = 0.5
SWITCH_SECONDS = 0.001
"""Interval at which Python switches threads: short, so that long computations do not delay requests."""
M_ARENA_MAX_CODE = -8
"""glibc's mallopt parameter for the number of heaps."""


def main(home: str, folder: str) -> int:
    """Serve until nobody needs the server. Returns 0 also if another server runs already."""
    os.umask(0o077)
    try:
        return serve(Place(Path(folder), Path(home)))
    except HermesError as error:
        sys.stderr.write(f"hermes: {error.line()}\n")
        return error.exit_code


def serve(place: Place) -> int:
    """Lock the folder as soon as it is free and serve, unless another server answers meanwhile."""
    read_rendezvous(place.rendezvous)  # raises early if the file belongs to another user
    end = time.monotonic() + START_LOCK_TIMEOUT_SECONDS
    while time.monotonic() < end:
        with try_lock(place.seat, LOCK_RETRY_SECONDS) as ours:
            if ours:
                set_up_process()
                # imported late: only the process that holds the lock needs a web server
                import_module("hermes.cli.memory_serving").serve_in_background(place)
                return 0
        found = read_rendezvous(place.rendezvous)
        if found is not None and look(found)[0] == "ours":
            return 0
    raise MemoryServerError(
        f"another process has held {place.seat}.lock for {START_LOCK_TIMEOUT_SECONDS:g} s and does not answer"
    )


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


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
