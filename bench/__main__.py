"""`make bench`: run everything, or only what is named: `python -m bench startup store`."""

from __future__ import annotations

import sys

from bench import gateway, startup, store

BENCHES = {"startup": startup.run, "store": store.run, "gateway": gateway.run}

for name in sys.argv[1:] or BENCHES:
    BENCHES[name]()
