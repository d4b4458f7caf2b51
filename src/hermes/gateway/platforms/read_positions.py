"""How far the chats of a platform were read, for platforms that do not repeat what nobody took.

A position follows the commit of its message, so a crash in between only means that the message is read twice, and the
inbox knows it. Positions of messages that were for nobody are written with a delay.
"""

from __future__ import annotations

from collections.abc import Callable

from hermes.gateway.platform import Intake

MAX_UNWRITTEN = 50
"""Messages that nobody wanted until positions are written all the same."""


class ReadPositions:
    """The positions of one platform. `is_later` compares two message ids."""

    def __init__(self, intake: Intake, is_later: Callable[[str, str], bool]) -> None:
        self._intake = intake
        self._is_later = is_later
        self._positions: dict[str, str] = {}
        self._unwritten: dict[str, str | None] = {}
        self._passed = 0

    async def load(self) -> None:
        """Read what is stored."""
        self._positions = await self._intake.read_positions()

    @property
    def places(self) -> list[str]:
        """All places with a position."""
        return list(self._positions)

    def get(self, place: str) -> str | None:
        """Return the position of a place."""
        return self._positions.get(place)

    async def advance(self, place: str, position: str, *, taken: bool) -> None:
        """Note that a place was read up to `position`; it is written at once if the message there was taken in."""
        known = self._positions.get(place)
        if known is not None and not self._is_later(position, known):
            return
        self._positions[place] = self._unwritten[place] = position
        self._passed += 1
        if taken or known is None or self._passed >= MAX_UNWRITTEN:
            await self.flush()

    def forget(self, place: str) -> None:
        """Drop a place that cannot be read any more."""
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
