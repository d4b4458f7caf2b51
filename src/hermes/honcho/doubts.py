"""Entries whose last attempt got no answer, so that they may have arrived; and from when on a look can tell."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from msgspec import Struct

from hermes.clock import Clock
from hermes.honcho.wire import DeliveryPatience
from hermes.memory.provider import Entry

REMEMBERED = 20_000
"""Entries of which this process knows how their last attempt ended."""


class _Known(Struct, frozen=True):
    at: float
    doubt: float | None


class Doubts:
    """What this process knows of the attempts it made. Of those that another process made it assumes the worst."""

    def __init__(self, clock: Clock, patience: DeliveryPatience) -> None:
        self._clock = clock
        self._patience = patience
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def wait(self, entry: Entry) -> float | None:
        """Seconds until a look can tell whether the entry arrived, 0 when it can now; None when it surely did not."""
        doubt = self._doubt(entry)
        return None if doubt is None else max(0.0, doubt + self._patience.look_after - self._clock.now())

    def taken(self, entries: Iterable[Entry]) -> None:
        """This process has taken these entries: what it knows of their earlier attempts stays valid."""
        for entry in entries:
            self._set(entry.key, self._doubt(entry))

    def sending(self, entries: Iterable[Entry]) -> None:
        """A request with these entries is being sent; from now on it may arrive."""
        for entry in entries:
            self._set(entry.key, self._clock.now())

    def absent(self, entries: Iterable[Entry]) -> None:
        """The server surely does not have these entries."""
        for entry in entries:
            self._set(entry.key, None)

    def _doubt(self, entry: Entry) -> float | None:
        if entry.tried_at is None:
            return None
        known = self._known.get(entry.key)
        if known is None or known.at < entry.tried_at:
            return entry.tried_at + self._patience.attempt
        return known.doubt

    def _set(self, key: str, doubt: float | None) -> None:
        self._known[key] = _Known(self._clock.now(), doubt)
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
