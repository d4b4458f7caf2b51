"""Address and key of the memory server, which is started if none runs.

After a refused connection, a 401 or a 5xx, a client calls `connect` again, which reads the rendezvous anew.
"""

from __future__ import annotations

import logging
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from msgspec import Struct

from hermes import __version__
from hermes.embedded.process import ask_to_end, last_words, let_run, look, show_key, start_process
from hermes.embedded.rendezvous import Place, Rendezvous, is_taken, read_rendezvous, try_lock, withdraw
from hermes.errors import HermesError, MemoryServerError
from hermes.home import Home

log = logging.getLogger(__name__)
CONNECT_TIMEOUT_SECONDS = 30.0
"""Time limit of a whole call: until an ending server is gone, or a new one responds."""
POLL_SECONDS, START_POLL_SECONDS = 0.05, 0.02
"""Time between two checks of the rendezvous; a process that started the server checks more often."""
SERVER_FOLDERS = ("memory_server", "ranking", "sqlite")
GONE_STATUS = "gone"
"""Status in `/health` of a server whose files were removed or replaced: it ends by itself."""
TellStep = Callable[[str], None]


class ServerConnection(Struct, frozen=True):
    """Base URL and API key, as an SDK needs them."""

    base_url: str
    api_key: str


def connect(place: Place, *, timeout: float = CONNECT_TIMEOUT_SECONDS, say: TellStep = log.info) -> ServerConnection:
    """Return a server that has just responded. Blocks for at most `timeout` seconds. Raises MemoryServerError or
    HomeError with a one-line message; `say` receives one line about each problem that was repaired."""
    found = _Search(place, timeout, say).find()
    return ServerConnection(found.url, found.api_key)


def stop(place: Place) -> Rendezvous | None:
    """Stop the background server, wait for its end and return it; None if none runs."""
    found = find_running(place)
    if found is None:
        return None
    if found.kind == "serve":
        raise MemoryServerError(
            f"the memory server of {place.folder} was started with `hermes memory serve` (process {found.pid})",
            hint="End it where it was started",
        )
    ask_to_end(found)
    end = time.monotonic() + CONNECT_TIMEOUT_SECONDS
    while is_taken(place) and read_rendezvous(place.rendezvous) in (None, found):
        if time.monotonic() > end:
            raise _unresponsive(found)
        time.sleep(POLL_SECONDS)
    return found


def find_running(place: Place) -> Rendezvous | None:
    """Return the server that responds now, without starting one. Raises MemoryServerError for one that runs but does
    not respond."""
    found = read_own(place)
    if found is None:
        return None
    presence, _ = look(found)
    if presence == "silent" and is_taken(place):
        raise _unresponsive(found)
    return found if presence == "ours" else None


def read_own(place: Place) -> Rendezvous | None:
    """Return the folder's rendezvous. None without one, or for one that was copied with another folder and leads to
    that folder's server."""
    found = read_rendezvous(place.rendezvous)
    return None if found is None or _is_copy(place, found) else found


def _is_copy(place: Place, found: Rendezvous) -> bool:
    """Return True for a copied rendezvous. A moved folder has another name too, but its server still holds the lock."""
    return found.folder not in ("", str(place.folder.resolve())) and not is_taken(place)


@contextmanager
def take_seat(place: Place) -> Iterator[Rendezvous | None]:
    """Hold the folder's lock as its server for the length of a block. A background server is asked to end first. A
    server that a person started stays, and its rendezvous is yielded instead."""
    end = time.monotonic() + CONNECT_TIMEOUT_SECONDS
    while True:
        with try_lock(place.seat, POLL_SECONDS) as ours:
            if ours:
                read_rendezvous(place.rendezvous)  # raises for a foreign file before anything is started
                yield None
                return
        found = find_running(place)
        if found is not None and found.kind == "serve":
            yield found
            return
        if found is not None:
            ask_to_end(found)
        if time.monotonic() > end:
            raise MemoryServerError(f"another process has held {place.seat}.lock for {CONNECT_TIMEOUT_SECONDS:g} s")


class _Search:
    """One attempt to find or start a server."""

    def __init__(self, place: Place, timeout: float, say: TellStep) -> None:
        self._place = place
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._say = say
        self._said: set[str] = set()

    def find(self) -> Rendezvous:
        while True:
            if (found := self._look()) is not None:
                return found
            Home(self._place.home).ensure()
            with try_lock(self._place.rendezvous) as ours:
                # A process that starts a server keeps this lock until it responds: a second look may find it.
                if ours and (found := self._look() or self._start()) is not None:
                    return found
            self._wait(self._nobody)

    def _look(self) -> Rendezvous | None:
        """Return the server to use; None without one, or for one that is about to end."""
        while (found := read_own(self._place)) is not None:
            presence, health = look(found)
            is_ending = presence == "ours" and health.get("status") == GONE_STATUS
            if presence == "ours" and _is_of_today(found) and not is_ending:
                return found
            if presence == "ours" and not is_ending and ask_to_end(found):
                same = " of an earlier installation" if found.version == __version__ else ""
                self._tell(
                    f"stopping the memory server of version {found.version}{same}; version {__version__} replaces it"
                )
                return None
            if presence != "ours" and not (presence == "silent" and is_taken(self._place)):
                self._tell(
                    f"the memory server of {self._place.folder} (process {found.pid}) has ended; starting another"
                )
                return None
            self._wait(lambda found=found: _unresponsive(found))  # type: ignore[misc]
        return None

    def _start(self) -> Rendezvous | None:
        """Start a process and wait for it. None if another server came first, or if the process was killed."""
        self._drop_copy()
        process = start_process(self._place)
        try:
            while process.poll() is None:
                found = read_rendezvous(self._place.rendezvous)
                if found is not None and _is_of_today(found) and look(found)[0] == "ours":
                    return found
                self._wait(lambda: self._late(process), START_POLL_SECONDS)
        finally:
            let_run(process)
        if process.returncode < 0:
            self._tell(f"the memory server (process {process.pid}) was killed as it started; starting another")
        elif process.returncode != 0:
            raise MemoryServerError(f"the memory server did not start: {last_words(self._place)}", hint="")
        return None

    def _drop_copy(self) -> None:
        """Remove a copied rendezvous, so that it is not taken for that of this folder's future server."""
        found = read_rendezvous(self._place.rendezvous)
        if found is not None and _is_copy(self._place, found):
            withdraw(self._place.rendezvous, found)

    def _late(self, process: subprocess.Popen[bytes]) -> MemoryServerError:
        return MemoryServerError(
            f"the memory server (process {process.pid}) did not answer within {self._timeout:g} s: "
            f"{last_words(self._place)}",
            hint="",
        )

    def _nobody(self) -> MemoryServerError:
        return MemoryServerError(f"no memory server of {self._place.folder} answered within {self._timeout:g} s")

    def _wait(self, problem: Callable[[], MemoryServerError], seconds: float = POLL_SECONDS) -> None:
        """Wait a moment. Raise `problem()` once the time is over."""
        if time.monotonic() > self._end:
            raise problem()
        time.sleep(seconds)

    def _tell(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)


def _is_of_today(found: Rendezvous) -> bool:
    """Return True for a server that is not of an earlier version than ours, or was started by a person. A newer one is
    used: we might not be able to read what it has written. A version that cannot be read is earlier, and so is a server
    of our version that runs since before its files were installed."""
    if found.kind == "serve" or _numbers(found.version) > _numbers(__version__):
        return True
    return _numbers(found.version) == _numbers(__version__) and not found.started_at < installed_at() <= time.time()


@cache
def installed_at() -> float:
    """Return when the newest file of the server's program came here, in seconds since 1970. Installers keep the time
    of a file's last change, so that is not asked."""
    package = Path(__file__).parents[1]
    files = (path for folder in SERVER_FOLDERS for path in (package / folder).rglob("*.py"))
    return max((path.stat().st_ctime for path in files), default=0.0)


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d{1,6}(\.\d{1,6}){0,5}", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def _unresponsive(found: Rendezvous) -> MemoryServerError:
    return MemoryServerError(
        f"the memory server at {found.url} (version {found.version}) runs but does not respond",
        hint=f"End process {found.pid} and try again",
    )


KEEP_ALIVE_SECONDS = 20.0
"""Time between two signs of use."""


@contextmanager
def keeping(place: Place) -> Iterator[None]:
    """Signal to a running server, for the length of the block, that it is still needed. None is started."""
    over = threading.Event()
    threading.Thread(target=_keep, args=(place, over), daemon=True, name="memory-server-kept").start()
    try:
        yield
    finally:
        over.set()


def _keep(place: Place, over: threading.Event) -> None:
    reported = ""
    while not over.wait(KEEP_ALIVE_SECONDS):
        try:
            if (found := find_running(place)) is not None:
                show_key(found)
            reported = ""
        except Exception as error:  # noqa: BLE001 - the thread's boundary: whatever is wrong now may be right next time
            line = error.line() if isinstance(error, HermesError) else f"{type(error).__name__}: {error}"
            if reported != line:
                reported = line
                log.warning("could not send a sign of use to the memory server: %s", line)
