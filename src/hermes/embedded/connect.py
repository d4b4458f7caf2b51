"""Address and key of the memory server, which is started when there is none.

Whoever is refused by the server, or gets a 401 or a 5xx, calls `connect` again: it reads the rendezvous anew.
"""

from __future__ import annotations

import logging
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from hermes import __version__
from hermes.embedded.asking import ask_to_end, look, show_key
from hermes.embedded.place import Place, is_taken, try_lock
from hermes.embedded.process import last_words, let_run, start_process
from hermes.embedded.rendezvous import Rendezvous, read_rendezvous, withdraw
from hermes.errors import HermesError, MemoryServerError
from hermes.home import Home

log = logging.getLogger(__name__)
PATIENCE = 30.0
"""Seconds for all of it: an ending server to be gone, a new one to answer."""
LOOK_EVERY, START_LOOK_EVERY = 0.05, 0.02
"""Seconds between two looks at the rendezvous; who started the server itself looks more often."""
LOST = "gone"
"""Status in `/health` of a server whose files were removed or replaced: it ends by itself."""
TellStep = Callable[[str], None]


class ServerConnection(Struct, frozen=True):
    """What an SDK is given."""

    base_url: str
    api_key: str


def connect(place: Place, *, patience: float = PATIENCE, say: TellStep = log.info) -> ServerConnection:
    """A server that has just answered. Blocks, for `patience` seconds at most. Raises MemoryServerError or HomeError in
    one line; `say` is told in one line what was found to be wrong and mended."""
    found = _Search(place, patience, say).find()
    return ServerConnection(found.url, found.api_key)


def stop(place: Place) -> Rendezvous | None:
    """Ask the background server to end and wait until it has: the one that ended, or None when there was none."""
    found = find_running(place)
    if found is None:
        return None
    if found.kind == "serve":
        raise MemoryServerError(
            f"the memory server of {place.folder} was started with `hermes memory serve` (process {found.pid})",
            hint="End it where it was started",
        )
    ask_to_end(found)
    end = time.monotonic() + PATIENCE
    while is_taken(place) and read_rendezvous(place.rendezvous) in (None, found):
        if time.monotonic() > end:
            raise _stubborn(found)
        time.sleep(LOOK_EVERY)
    return found


def find_running(place: Place) -> Rendezvous | None:
    """The server that answers now. Nothing is started. Raises MemoryServerError for one that runs and does not."""
    found = read_own(place)
    if found is None:
        return None
    presence, _ = look(found)
    if presence == "silent" and is_taken(place):
        raise _stubborn(found)
    return found if presence == "ours" else None


def read_own(place: Place) -> Rendezvous | None:
    """What the folder's rendezvous says; None where there is none, or where it is a copy: it came here with a copy of
    the folder that it is about, and leads to that one's server."""
    found = read_rendezvous(place.rendezvous)
    return None if found is None or _is_copy(place, found) else found


def _is_copy(place: Place, found: Rendezvous) -> bool:
    """A folder that was moved has another name too, but its server still holds it."""
    return found.folder not in ("", str(place.folder.resolve())) and not is_taken(place)


@contextmanager
def take_seat(place: Place) -> Iterator[Rendezvous | None]:
    """Take the folder's lock as its server for the length of a block. A background server is asked to end first. If a
    person has started a server, that one stays, and its rendezvous is yielded instead."""
    end = time.monotonic() + PATIENCE
    while True:
        with try_lock(place.seat, LOOK_EVERY) as ours:
            if ours:
                read_rendezvous(place.rendezvous)  # what is not ours is told before anything is begun
                yield None
                return
        found = find_running(place)
        if found is not None and found.kind == "serve":
            yield found
            return
        if found is not None:
            ask_to_end(found)
        if time.monotonic() > end:
            raise MemoryServerError(f"another process has held {place.seat}.lock for {PATIENCE:g} s")


class _Search:
    """One attempt to find or start a server."""

    def __init__(self, place: Place, patience: float, say: TellStep) -> None:
        self._place = place
        self._patience = patience
        self._end = time.monotonic() + patience
        self._say = say
        self._said: set[str] = set()

    def find(self) -> Rendezvous:
        while True:
            if (found := self._look()) is not None:
                return found
            Home(self._place.home).ensure()
            with try_lock(self._place.rendezvous) as ours:
                # Who starts a server keeps this lock until it answers: looking again, we may find it.
                if ours and (found := self._look() or self._start()) is not None:
                    return found
            self._wait(self._nobody)

    def _look(self) -> Rendezvous | None:
        """The server to use; None when there is none, or one that is about to end."""
        while (found := read_own(self._place)) is not None:
            presence, health = look(found)
            is_ending = presence == "ours" and health.get("status") == LOST
            if presence == "ours" and _is_of_today(found) and not is_ending:
                return found
            if presence == "ours" and not is_ending and ask_to_end(found):
                self._tell(f"the memory server of version {found.version} ends; {__version__} takes its place")
                return None
            if presence != "ours" and not (presence == "silent" and is_taken(self._place)):
                self._tell(
                    f"the memory server of {self._place.folder} (process {found.pid}) is gone; another takes its place"
                )
                return None
            self._wait(lambda found=found: _stubborn(found))  # type: ignore[misc]
        return None

    def _start(self) -> Rendezvous | None:
        """Start a process and wait for it; None when another server was there first, or when it was killed."""
        self._drop_copy()
        process = start_process(self._place)
        try:
            while process.poll() is None:
                found = read_rendezvous(self._place.rendezvous)
                if found is not None and _is_of_today(found) and look(found)[0] == "ours":
                    return found
                self._wait(lambda: self._late(process), START_LOOK_EVERY)
        finally:
            let_run(process)
        if process.returncode < 0:
            self._tell(f"the memory server (process {process.pid}) was killed as it started; another takes its place")
        elif process.returncode != 0:
            raise MemoryServerError(f"the memory server did not start: {last_words(self._place)}", hint="")
        return None

    def _drop_copy(self) -> None:
        """Remove a copied rendezvous: once the folder has a server of its own, it could be taken for that one's."""
        found = read_rendezvous(self._place.rendezvous)
        if found is not None and _is_copy(self._place, found):
            withdraw(self._place.rendezvous, found)

    def _late(self, process: subprocess.Popen[bytes]) -> MemoryServerError:
        return MemoryServerError(
            f"the memory server (process {process.pid}) did not answer within {self._patience:g} s: "
            f"{last_words(self._place)}",
            hint="",
        )

    def _nobody(self) -> MemoryServerError:
        return MemoryServerError(f"no memory server of {self._place.folder} answered within {self._patience:g} s")

    def _wait(self, problem: Callable[[], MemoryServerError], seconds: float = LOOK_EVERY) -> None:
        """Wait a moment. When no time is left, raise an error that says what we waited for."""
        if time.monotonic() > self._end:
            raise problem()
        time.sleep(seconds)

    def _tell(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)


def _is_of_today(found: Rendezvous) -> bool:
    """Not of an earlier version than ours, or started by a person. A newer one is used: we might not be able to read
    what it has written. A version that cannot be read is earlier."""
    return found.kind == "serve" or _numbers(found.version) >= _numbers(__version__)


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d{1,6}(\.\d{1,6}){0,5}", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def _stubborn(found: Rendezvous) -> MemoryServerError:
    return MemoryServerError(
        f"the memory server at {found.url} (version {found.version}) runs and does not answer",
        hint=f"End process {found.pid} and try again",
    )


KEEP_EVERY = 20.0
"""Seconds between two uses."""


@contextmanager
def keeping(place: Place) -> Iterator[None]:
    """Show a running server now and then, for the length of the block, that it is still needed. None is started."""
    over = threading.Event()
    threading.Thread(target=_keep, args=(place, over), daemon=True, name="memory-server-kept").start()
    try:
        yield
    finally:
        over.set()


def _keep(place: Place, over: threading.Event) -> None:
    told = ""
    while not over.wait(KEEP_EVERY):
        try:
            if (found := find_running(place)) is not None:
                show_key(found)
            told = ""
        except Exception as error:  # noqa: BLE001 - the thread's boundary: whatever is wrong now may be right next time
            line = error.line() if isinstance(error, HermesError) else f"{type(error).__name__}: {error}"
            if told != line:
                told = line
                log.warning("could not tell the memory server that it is still needed: %s", line)
