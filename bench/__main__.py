"""`make bench`: run everything, or only what is named: `python -m bench startup store`."""

from __future__ import annotations

import sys

from bench import (
    compression,
    embedded,
    gateway,
    gateway_memory,
    history_search,
    honcho_recall,
    honcho_writing,
    hostile,
    log,
    memory_server,
    outbox,
    remembering,
    rendering,
    repair,
    startup,
    store,
    turn,
    web,
)

BENCHES = {
    "startup": startup.run,
    "store": store.run,
    "log": log.run,
    "history_search": history_search.run,
    "turn": turn.run,
    "rendering": rendering.run,
    "outbox": outbox.run,
    "remembering": remembering.run,
    "compression": compression.run,
    "gateway": gateway.run,
    "gateway_memory": gateway_memory.run,
    "repair": repair.run,
    "memory_server": memory_server.run,
    "web": web.run,
    "hostile": hostile.run,
    "bounds": hostile.run_bounds,
    "embedded": embedded.run,
    "honcho_writing": honcho_writing.run,
    "honcho_recall": honcho_recall.run,
}

for name in sys.argv[1:] or BENCHES:
    BENCHES[name]()
