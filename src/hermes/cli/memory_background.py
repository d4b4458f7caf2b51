"""The background memory server of a folder: `python -m hermes.cli.memory_background HOME FOLDER`.

A program of its own, beside the command line: it answers sooner without what commands need. `hermes memory start`
starts it, and so does everyone who needs memory.
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

PATIENCE = 30.0
"""Seconds for a server that is ending to be gone."""
TRY_FOR = 0.5


def main(home: str, folder: str) -> int:
    """Serve until nobody needs it any more; 0 also when another server is there already."""
    os.umask(0o077)
    try:
        return serve(Place(Path(folder), Path(home)))
    except HermesError as error:
        sys.stderr.write(f"hermes: {error.line()}\n")
        return error.exit_code


def serve(place: Place) -> int:
    """Take the folder's seat as soon as it is free and serve, unless another server answers meanwhile."""
    read_rendezvous(place.rendezvous)  # what is not ours is told before anything is begun
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with try_lock(place.seat, TRY_FOR) as ours:
            if ours:
                set_up_process()
                # Loaded by name: only who has the seat needs a web server.
                import_module("hermes.cli.memory_serving").serve_in_background(place)
                return 0
        found = read_rendezvous(place.rendezvous)
        if found is not None and look(found)[0] == "ours":
            return 0
    raise MemoryServerError(f"another process has held {place.seat}.lock for {PATIENCE:g} s and does not answer")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
