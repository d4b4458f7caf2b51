"""Every key of the table is read by the code that acts on it."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.keys import TABLE, Key
from tests.honcho.configuring import Machine
from tests.honcho.places import HERE, PLACES, plugin

WITHOUT_EFFECT = {"initOnSessionStart", "a2aSessions"}
"""The first key has no effect by design; the second is read on delivery."""


def test_every_key_is_read_where_something_is_done(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()
    get = HonchoConfiguration.get

    def record(self: HonchoConfiguration, key: Key[Any]) -> Any:
        read.add(key.key)
        return get(self, key)

    machine.write({"apiKey": "k"})
    found = plugin(machine)
    found.configuration()  # looking for what is wrong is not acting
    monkeypatch.setattr(HonchoConfiguration, "get", record)
    found.is_available()
    for place in PLACES:
        found.address(place)
    found.open(HERE, found.address(HERE))
    found.remarks([])  # a sign-in is told of; renewing it comes with signing in
    assert {row.key for row in TABLE} - read == WITHOUT_EFFECT
