"""`make bench`: run everything, or only what is named: `python -m bench startup store`."""

from __future__ import annotations

import sys

from bench import compression, startup, store

BENCHES = {"compression": compression.run, "startup": startup.run, "store": store.run}

for name in sys.argv[1:] or BENCHES:
    BENCHES[name]()
