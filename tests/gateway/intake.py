"""An intake that records everything, for tests of platforms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hermes.errors import StoreBusyError
from hermes.gateway.platform import Inbound, Moved


@dataclass
class RecordingIntake:
    """An intake that records what it gets, as a store does across restarts; its first `busy` calls fail."""

    busy: int = 0
    taken: list[Inbound] = field(default_factory=list)
    moves: list[Moved] = field(default_factory=list)
    positions: dict[str, str] = field(default_factory=dict)
    reports: list[tuple[str, str]] = field(default_factory=list)
    positions_read: bool = False

    async def move(self, moved: Moved) -> None:
        self.moves.append(moved)

    async def receive(self, message: Inbound) -> None:
        if self.busy:
            self.busy -= 1
            raise StoreBusyError("locked")
        if message.message_id not in [one.message_id for one in self.taken]:
            self.taken.append(message)

    async def read_positions(self) -> dict[str, str]:
        self.positions_read = True
        return dict(self.positions)

    async def write_positions(self, positions: Mapping[str, str | None]) -> None:
        for place, position in positions.items():
            if position is None:
                self.positions.pop(place, None)
            else:
                self.positions[place] = position

    async def report(self, part: str, state: str, detail: str) -> None:
        self.reports.append((state, detail))

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.taken]


async def until(look: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not look():  # noqa: ASYNC110 - the server runs in another thread
            await asyncio.sleep(0.02)
