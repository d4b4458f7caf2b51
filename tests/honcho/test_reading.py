"""Every key of the table is read by the code that acts on it."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.honcho.configuration import Configuration
from hermes.honcho.keys import TABLE, Key
from tests.honcho.configuring import Machine
from tests.honcho.places import PLACES, plugin

FOR_WRITING = {"observation", "observationMode"}
"""Keys that are read when a session is set up on a server."""
FOR_RECALLING = {
    "recallMode",
    "dialecticDepth",
    "dialecticDepthLevels",
    "dialecticReasoningLevel",
    "dialecticDynamic",
    "dialecticMaxChars",
    "dialecticMaxInputChars",
    "reasoningHeuristic",
    "reasoningLevelCap",
    "contextTokens",
    "contextCadence",
    "dialecticCadence",
    "injectionFrequency",
}
"""Keys that what recalls will read."""
FOR_SIGNING_IN = {"oauth"}
"""Keys that what renews a grant will read."""


def test_every_key_is_read_where_something_is_done_or_is_named_here(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: set[str] = set()
    get = Configuration.get

    def record(self: Configuration, key: Key[Any]) -> Any:
        read.add(key.key)
        return get(self, key)

    found = plugin(machine)
    found.configuration()  # looking for what is wrong is not acting
    monkeypatch.setattr(Configuration, "get", record)
    found.is_available()
    for place in PLACES:
        found.address(place)
    assert {row.key for row in TABLE} - read == FOR_WRITING | FOR_RECALLING | FOR_SIGNING_IN
