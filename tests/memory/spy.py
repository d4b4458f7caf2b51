"""A provider in a home's plugin folder that records entries, and is slow or fails as a file configures.

`trouble.json` of the home is read at each hook: {"recall": seconds to block, "deliver": seconds to block, "fail": how
many deliveries raise, "hang": whether deliveries never end}. `told.jsonl` gets a line for each entry that had its
effect, once by key; `tries.jsonl` one for each attempt.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hermes.memory.provider import (
    Address,
    Conversation,
    Delivered,
    Entry,
    MemoryPlugin,
    MemorySession,
    Notebook,
    Outcome,
    Question,
    Recalled,
)

SOURCE = "from tests.memory.spy import Spy as create_plugin\n"


def install_spy(home: Path, **trouble: Any) -> None:
    """Choose the spy for a home."""
    folder = home / "plugins" / "spy"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(SOURCE, encoding="utf-8")
    set_trouble(home, **trouble)


def set_trouble(home: Path, **trouble: Any) -> None:
    """Set the faults from now on."""
    path = home / "trouble.json"
    path.with_suffix(".new").write_text(json.dumps(trouble), encoding="utf-8")
    path.with_suffix(".new").replace(path)


def told(home: Path, *kinds: str) -> list[str]:
    """Return the texts of entries that had their effect, in order."""
    return [text for kind, text, _ in lines(home, "told.jsonl") if kind in (kinds or ("said",))]


def lines(home: Path, name: str) -> list[list[Any]]:
    path = home / name
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("]")]


class SpySession(MemorySession):
    def __init__(self, spy: Spy) -> None:
        self._spy = spy

    async def recall(self, question: Question) -> Recalled:
        time.sleep(self._spy.trouble().get("recall", 0))  # noqa: ASYNC251 - the very thing under test
        return Recalled()


class Spy(MemoryPlugin):
    name = "spy"

    def trouble(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.host.home / "trouble.json").read_text(encoding="utf-8"))
        return found

    def is_available(self) -> bool:
        return True

    def address(self, place: Conversation | Notebook) -> Address:
        lane = place.session_id if isinstance(place, Conversation) else "notes"
        return Address(lane, lane, frozenset({"said", "reply"}))

    def open(self, conversation: Conversation, address: Address) -> MemorySession:
        return SpySession(self)

    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        trouble = self.trouble()
        for entry in entries:
            self._write("tries.jsonl", entry)
        if trouble.get("fail", 0) > 0:
            set_trouble(self.host.home, **{**trouble, "fail": trouble["fail"] - 1})
            raise OSError("the server is away")
        while trouble.get("hang"):
            time.sleep(0.05)  # noqa: ASYNC251
            trouble = self.trouble()
        time.sleep(trouble.get("deliver", 0))  # noqa: ASYNC251
        known = {key for _, _, key in lines(self.host.home, "told.jsonl")}
        for entry in entries:
            if entry.key not in known:
                self._write("told.jsonl", entry)
        return [Delivered()] * len(entries)

    def _write(self, name: str, entry: Entry) -> None:
        line = json.dumps([entry.kind, entry.text, entry.key]) + "\n"
        handle = os.open(self.host.home / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)
