"""Reads: each on its own snapshot, in lanes.

    read ── lane 1 (many threads, little time each) ── lane 2 ── … ── the last lane (until the deadline)

A read that needs more CPU time than its lane allows is restarted in the next lane, so that a few slow reads delay
nobody else. Within a lane, light clients go first. In the slower lanes one read works at a time and pauses while others
read, because several would compete for Python's global lock (GIL) and slow everybody down. A read whose caller was
cancelled is stopped. SQLite's progress callback does all this, in the read's own thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Generic

from msgspec import Struct

from hermes.errors import StoreStoppedError
from hermes.sqlite.connection import Opened, T, Tx, translated
from hermes.sqlite.scheduling import Threads, Turn, scheduled_client

STEPS_PER_CHECK, SLOW_STEPS_PER_CHECK = 50_000, 5_000
"""Number of SQLite virtual-machine steps between two progress callbacks, about a millisecond; fewer for slow reads,
whose steps may be Python functions of ours."""


class ReadLane(Struct, frozen=True):
    """A group of reader threads: their number, the CPU seconds that a read may take in this lane (None: no limit), and
    the seconds that a result may wait for the next one, to be returned together."""

    threads: int
    seconds: float | None = None
    together: float = 0.0


class _NextLaneError(Exception):
    """The read needs more time than its lane allows."""


class TimedRead:
    """One read on its way through the lanes."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._stopped = False
        self._until: float | None = None
        self.spent = 0.0
        """CPU seconds over all lanes."""
        self.turn: Turn | None = None

    def run(self, run: Callable[[], T], lane: ReadLane, turn: Turn | None) -> T:
        """Run `run` in a lane's thread; with a `turn`, wait for the turn first."""
        begun = time.thread_time()
        self._until = None if lane.seconds is None else begun + lane.seconds
        self.turn = turn
        if turn is not None:
            turn.take()
        _current.reading = self
        try:
            check_reading()
            return run()
        finally:
            _current.reading = None  # what ends the transaction must not be stopped
            if turn is not None:
                turn.leave()
            self.spent += time.thread_time() - begun

    def stop(self) -> None:
        """Stop the read, whose caller is gone."""
        self._stopped = True

    def ask(self) -> Exception | None:
        """Pause for others if it is time to, then return the reason to stop, or None."""
        if self.turn is not None:
            self.turn.give_way()
        return self.refusal()

    def refusal(self) -> Exception | None:
        """Return the reason to stop, or None."""
        if self._stopped:
            return StoreStoppedError("a read was stopped: nobody waits for it")
        if self._deadline is not None and time.monotonic() > self._deadline:
            return StoreStoppedError(f"a read was stopped: it took longer than {self._seconds:g} seconds")
        if self._until is not None and time.thread_time() > self._until:
            return _NextLaneError()
        return None


class _Current(threading.local):
    reading: TimedRead | None = None


_current = _Current()


def check_reading() -> None:
    """Raise if the current read must stop; do nothing outside a read. Long computations inside a read call this."""
    reading = _current.reading
    if reading is not None and (refusal := reading.ask()) is not None:
        raise refusal


def _is_refused() -> bool:
    reading = _current.reading
    return reading is not None and reading.ask() is not None


class Readers(Generic[Tx]):
    """Threads that read one file, each with its own connection."""

    def __init__(
        self,
        path: Path,
        connect: Callable[[], Opened[Tx]],
        *,
        lock_timeout: float,
        lanes: Sequence[ReadLane],
        seconds: float | None,
    ) -> None:
        """`seconds` limits a read from the moment it is requested; None: no limit."""
        self._path = path
        self._connect = connect
        self._lock_timeout = lock_timeout
        self._seconds = seconds
        self._lanes = [(lane, Threads(lane.threads, f"{path.name} reader", lane.together)) for lane in lanes]
        self._under_way = 0
        self._slow = threading.Lock()
        self._local = threading.local()
        self._opened: list[Opened[Tx]] = []

    async def read(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on one consistent snapshot. It may be started more than once, and must have no effect outside."""
        reading = TimedRead(self._seconds)
        who = scheduled_client.get()
        self._under_way += 1
        try:
            for place, (_, threads) in enumerate(self._lanes):
                try:
                    return await threads.run(
                        partial(self._run, run, reading, place), who.rank if who is not None else 0
                    )
                except _NextLaneError:
                    continue
        finally:
            self._under_way -= 1
            reading.stop()
            if who is not None:
                who.took(reading.spent)
        raise AssertionError("the last lane has no limit")

    def close(self) -> None:
        """Wait for running reads, then close the connections. Safe to call twice."""
        for _, threads in self._lanes:
            threads.end()
        for opened in self._opened:
            opened.tx.close()

    def _run(self, run: Callable[[Tx], T], reading: TimedRead, place: int) -> T:
        """Read in the lane with this index."""
        lane, turn = self._lanes[place][0], None
        if place:
            turn = Turn(self._slow, lambda: self._under_way > 1, place, lambda: reading.refusal() is not None)
        try:
            with translated(self._path):
                opened = self._connection(SLOW_STEPS_PER_CHECK if place else STEPS_PER_CHECK)
                opened.raw.execute("BEGIN")
                return opened.run_and_undo(lambda tx: reading.run(lambda: run(tx), lane, turn))
        except StoreStoppedError:
            if (refusal := reading.refusal()) is not None:  # SQLite knows that it was stopped, and we why
                raise refusal from None
            raise

    def _connection(self, steps: int) -> Opened[Tx]:
        opened: Opened[Tx] | None = getattr(self._local, "opened", None)
        if opened is None:
            opened = self._connect()
            self._opened.append(opened)
            opened.raw.execute(f"PRAGMA busy_timeout = {int(self._lock_timeout * 1000)}")
            opened.raw.execute("PRAGMA query_only = ON")
            opened.raw.set_progress_handler(_is_refused, steps)
            self._local.opened = opened
        return opened
