"""A model for terminal walks: its answer depends on a word in the question, never on earlier messages."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.llm.loopback import Answer, LoopbackServer, Received, fails, says

PAUSE_SECONDS = 0.01
REPLY = """# Sorting large files

Here is **what matters** when files do not fit into memory: *stability*, the cost of `compare()`, and disks. See
[the manual](https://example.org/sort) for more, and **mind a long bold phrase that goes over the end of a row**.

1. Read a chunk that fits into memory, and do not forget that the last one may be shorter than the others.
2. Sort it:
   - nested items are indented, also where they are folded in a narrow window

> A quote that is long enough to be folded in a narrow window, so that its bar is to be seen on each row.

```python
def merge(parts: list[Path]) -> None:
    for part in parts:
        print(part.name)  # copied as it stands
```

| way | cost | what it is good for |
|:----|-----:|---------------------|
| merge sort | 1,234 | stable and **external**, as databases do it when the memory is not enough for all rows |
| quick sort | 20 | what fits |

*args and **kwargs stay as they are, and so does snake_case_name.
"""
NOTE = json.dumps({"action": "add", "target": "user", "content": "Likes green tea in the morning"})


class WalkModel(LoopbackServer):
    """Answers the last message of a person."""

    def __init__(self) -> None:
        super().__init__(pages={"/v1/models": Answer(body=json.dumps({"data": [{"id": "walk-1"}, {"id": "walk-2"}]}))})
        self._failed = 0

    def _choose(self, received: Received) -> Answer:
        if received.method == "GET":
            return super()._choose(received)
        messages = received.body["messages"]
        asked = str([message["content"] for message in messages if message["role"] == "user"][-1])
        counted = {"prompt_tokens": sum(len(str(message)) // 4 for message in messages), "completion_tokens": 40}
        if "table" in asked:
            return says(f"{REPLY}\nThat was: {asked}.", piece=4, pause=PAUSE_SECONDS, usage=counted)
        if "slow" in asked or "summar" in asked.lower():
            return says("Late.", delay=20.0)
        if "note" in asked and messages[-1]["role"] == "user":
            return says(calls=[("memory", NOTE)], usage=counted)
        if "refuse" in asked:
            self._failed += 1
            return fails(503, "too busy", {"Retry-After": "1"}) if self._failed <= 2 else says("At last.")
        return says(f"You said: {asked[:200]}", usage=counted)


@contextmanager
def serving() -> Iterator[str]:
    """Yield the address of a model that runs in a separate thread."""
    loop, model = asyncio.new_event_loop(), WalkModel()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(model.__aenter__(), loop).result(10)
    try:
        yield model.base_url
    finally:
        asyncio.run_coroutine_threadsafe(model.__aexit__(None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
