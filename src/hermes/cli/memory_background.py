"""The background memory server of a folder: `python -m hermes.cli.memory_background HOME FOLDER`.

A separate program that loads none of the command line, so it starts faster. `hermes memory start` starts it, and so
does any process that needs memory.
"""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module
from pathlib import Path

from hermes.cli.server_process import set_up_process
from hermes.embedded.asking import look
from hermes.embedded.place import Place, try_lock
from hermes.embedded.rendezvous import read_rendezvous
from hermes.errors import HermesError, MemoryServerError

START_LOCK_TIMEOUT_SECONDS = 30.0
"""How long to wait for an ending server to release the folder."""
LOCK_RETRY_SECONDS = 0.5


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


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
