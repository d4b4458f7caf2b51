"""Read positions of a platform's chats, for platforms that do not repeat missed messages.

A position is written after the commit of its message, so a crash in between only means that the message is read twice,
which the inbox notices. Positions of messages for nobody are written with a delay.
"""

from __future__ import annotations

from collections.abc import Callable

from hermes.gateway.platform import Intake

MAX_UNWRITTEN = 50
"""Number of ignored messages after which positions are written."""


class ReadPositions:
    """The positions of one platform. `is_later` compares two message ids."""

    def __init__(self, intake: Intake, is_later: Callable[[str, str], bool]) -> None:
        self._intake = intake
        self._is_later = is_later
        self._positions: dict[str, str] = {}
        self._unwritten: dict[str, str | None] = {}
        self._passed = 0

    async def load(self) -> None:
        """Load the stored positions."""
        self._positions = await self._intake.read_positions()

    @property
    def places(self) -> list[str]:
        """The ids of all chats with a position."""
        return list(self._positions)

    def get(self, place: str) -> str | None:
        """Return the position of a chat."""
        return self._positions.get(place)

    async def advance(self, place: str, position: str, *, taken: bool) -> None:
        """Record that a chat was read up to `position`; written at once if its message was accepted."""
        known = self._positions.get(place)
        if known is not None and not self._is_later(position, known):
            return
        self._positions[place] = self._unwritten[place] = position
        self._passed += 1
        if taken or known is None or self._passed >= MAX_UNWRITTEN:
            await self.flush()

    def forget(self, place: str) -> None:
        """Drop a chat that cannot be read any more."""
        if self._positions.pop(place, None) is not None:
            self._unwritten[place] = None

    async def flush(self) -> None:
        """Write the positions that are not stored yet."""
        if self._unwritten:
            unwritten, self._unwritten = self._unwritten, {}
            try:
                await self._intake.write_positions(unwritten)
            except BaseException:
                self._unwritten = {**unwritten, **self._unwritten}
                raise
        self._passed = 0
