"""The chosen provider of a profile in one process: its plugin in a thread, its health and its outbox.

Background work of memory. Failures are logged, since nobody waits for the result.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field

from hermes.db.engine import Tx
from hermes.errors import HermesError
from hermes.memory.health import EVERYWHERE, ProviderHealth
from hermes.memory.mirror import Mirrored, NoteChange, mirror_notes
from hermes.memory.offered import address_flaw
from hermes.memory.outbox import Destination, Outbox
from hermes.memory.plugin_host import PluginHost
from hermes.memory.plugin_thread import Deadline, Expected, Hook, HookResult, Missed, PluginThread, Returned
from hermes.memory.provider import MemoryPlugin
from hermes.memory.registry import Factory
from hermes.memory.values import Address, Conversation, Notebook
from hermes.store.store import Store
from hermes.types import Json

log = logging.getLogger("hermes.memory")


class Background:
    """The background tasks of one provider."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        async def run() -> None:
            with self.logged(what):
                await work

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @contextmanager
    def logged(self, what: str) -> Iterator[None]:
        """Log an error of the block instead of raising it."""
        try:
            yield
        except HermesError as error:
            log.warning("memory provider %s: %s failed: %s", self._provider, what, error.line())

    async def settle(self, seconds: float = 60.0) -> None:
        """Wait until all tasks have ended, or `seconds` have passed."""
        until = asyncio.get_running_loop().time() + seconds
        while self._tasks and (left := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)


T = TypeVar("T")


RESTART_INTERVAL_SECONDS = 30.0
"""A provider that failed to start is tried again after this time."""
PLUGIN_LINE = "plugin"
"""The line of hooks that belong to no conversation."""
START_HOOK = "is_available"
"""The first hook that is called; it decides whether the plugin starts."""
MAX_CONCURRENT_PREPARATIONS = 16
"""Limits how many conversations prepare their next recall at a time; others wait."""
BUSY_RECALLS, BUSY_SECONDS, BUSY_TURNS = 5, 1.0, 3
"""A process is busy while this many turns recalled within so many seconds and this many turns run. A program that
sends one question after another does not make it busy."""
PAUSE_SECONDS = 0.1
"""Preparing the next recall waits this long after a turn: a message that follows at once, as a program's may, does not
compete with it, and would not get its result in time anyway."""
MAX_YIELD_SECONDS = 2.0
"""A busy process postpones deliveries and the next recall's preparation, but no longer than this."""


class Deadlines(Struct, frozen=True):
    """Time limits in seconds."""

    first_turn: float = 3.0
    turn: float = 2.0
    tool: float = 30.0
    compress: float = 5.0
    close: float = 5.0
    prepare: float = 120.0
    delivered: float = 5.0
    """How long a turn waits for its delivery, if the provider asks for it."""
    deliver: float = 45.0
    """How long `deliver` may take; shorter than the lease of a lane."""


class Surroundings(Struct, frozen=True):
    """The environment that a plugin sees through its host."""

    home: Path
    profile: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    is_chosen: bool = True
    """True if a person chose the provider, False if it is the default."""
    ask_model: Callable[[str, str], Coroutine[Any, Any, str]] | None = None
    """Calls the configured model with instructions and a text, on the host's loop; None without a model."""
    owner_name: str = ""


class ActiveProvider:
    """The active provider; one per process and profile. The plugin is loaded at the first call. Close it at the
    end."""

    def __init__(
        self,
        name: str,
        make: Factory,
        store: Store,
        surroundings: Surroundings,
        deadlines: Deadlines | None = None,
    ) -> None:
        self.name = name
        self.store = store
        self.deadlines = deadlines or Deadlines()
        self.health = ProviderHealth(name)
        self.outbox = Outbox(name)
        self.background = Background(name)
        self.preparing = asyncio.Semaphore(MAX_CONCURRENT_PREPARATIONS)
        self._recalled_at: deque[float] = deque(maxlen=BUSY_RECALLS)
        self._turns_running: set[str] = set()
        self._recall_count = 0
        self._no_recall = asyncio.Event()
        self._no_recall.set()
        self.wake = asyncio.Event()
        """Set when the outbox may have something to deliver."""
        self.deliver_lane: Callable[[str, float], Awaitable[bool]] | None = None
        """Delivers a lane before others, until a time of the clock; None while this process delivers nothing."""
        self._make = make
        self._surroundings = surroundings
        self._thread: PluginThread | None = None
        self._starting: asyncio.Task[bool] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._try_again = Deadline(0.0, 0.0)
        self._signed: dict[str, Json] | None = None
        self._signature: str | None = None
        self._addressing: asyncio.Task[None] | None = None
        self._closed = False

    def within(self, seconds: float) -> Deadline:
        """Return the deadline that is `seconds` from now."""
        return Deadline.after(seconds, self.store.clock)

    async def call(
        self,
        hook: str,
        run: Hook[T],
        expect: Expected[T],
        deadline: Deadline,
        *,
        line: str = PLUGIN_LINE,
        whose: str = EVERYWHERE,
        flaw: Callable[[T], str] = lambda _: "",
    ) -> HookResult[T]:
        """Call one hook within a deadline. `flaw` describes an error in the result, which is reported but still
        returned."""
        result = await self._call_in_time(hook, run, expect, deadline, line)
        flawed = flaw(result.value) if isinstance(result, Returned) else ""
        self.report(hook, Missed(f"{hook} returned {flawed}") if flawed else result, whose)
        return result

    @contextmanager
    def recalling(self, session_id: str) -> Iterator[None]:
        """Mark the time in which a turn waits for its recall: work that can wait does not compete with it."""
        self._turns_running.add(session_id)
        self._recalled_at.append(asyncio.get_running_loop().time())
        self._recall_count += 1
        self._no_recall.clear()
        try:
            yield
        finally:
            self._recall_count -= 1
            if not self._recall_count:
                self._no_recall.set()

    def turn_over(self, session_id: str) -> None:
        """Record the end of a turn, and wake deliveries."""
        self._turns_running.discard(session_id)
        self.wake.set()

    async def yield_to_turns(self) -> None:
        """Wait until the process is not busy with turns and no turn waits for its recall, for a limited time."""
        now, deadline, recalls = asyncio.get_running_loop().time, self.within(MAX_YIELD_SECONDS), self._recalled_at
        while len(self._turns_running) >= BUSY_TURNS and (left := deadline.seconds_left()):
            busy_until = recalls[0] + BUSY_SECONDS if len(recalls) == BUSY_RECALLS else 0.0
            if busy_until <= now():
                break
            await asyncio.sleep(min(left, busy_until - now()))
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline.seconds_left()):
                await self._no_recall.wait()

    def report(self, hook: str, result: HookResult[T], whose: str = EVERYWHERE) -> None:
        """Record the result of a hook. Skipped hooks are ignored: the reason was reported before."""
        if isinstance(result, Returned):
            self.health.worked(hook, whose)
        elif not result.skipped:
            self.health.missed(hook, result.reason, whose)

    def report_late_open(self, whose: str) -> None:
        """Report that opening a session timed out, and which hook has not returned."""
        hook, where = (
            ("open", whose) if self._starting is not None and self._starting.done() else (START_HOOK, EVERYWHERE)
        )
        self.health.missed(hook, f"{hook} has not come back", where)

    def let_go(self, session_id: str) -> None:
        """Drop the state of a closed conversation."""
        self._turns_running.discard(session_id)
        self.health.forget(session_id)
        if self._thread is not None:
            self._thread.forget(session_id)

    def warm_up(self) -> None:
        """Start `warm_up` in the background, once: the plugin prepares for a first question."""
        if self._warming is None:
            self._warming = asyncio.create_task(self._warm_up(), name="memory-warm-up")

    async def signature(self) -> str | None:
        """Return the provider's signature as text; agents are reopened when it changes. If the provider is late, the
        last signature is returned, or None."""

        async def ask(plugin: MemoryPlugin) -> dict[str, Json] | None:
            return plugin.cache_busting_signature()

        deadline = self.within(self.deadlines.turn)
        found = await self.call("cache_busting_signature", ask, (dict, type(None)), deadline, line="signature")
        if isinstance(found, Returned) and found.value != self._signed:
            self._signed = found.value
            self._signature = None if found.value is None else json.dumps(found.value, sort_keys=True, default=repr)
        return self._signature

    async def status(self) -> Mapping[str, Json]:
        """Return the plugin's status lines."""
        deadline = self.within(self.deadlines.close)
        ask: Hook[Mapping[str, Json]] = methodcaller("status", deadline.wall_time)
        found = await self.call("status", ask, (dict,), deadline)
        return found.value if isinstance(found, Returned) else {}

    async def flush(self, lane: str, seconds: float) -> None:
        """Wait until the lane is empty, or its remaining entries are not due within `seconds`; not at all while the
        plugin does not start. Store errors are only logged, so that a turn can continue."""
        if self.deliver_lane is not None and not self._is_out():
            with self.background.logged(f"delivering lane {lane}"):
                await self.deliver_lane(lane, self.store.clock.now() + seconds)

    async def flush_all(self, lanes: Iterable[str], seconds: float) -> None:
        """Deliver the pending entries of these lanes now, within `seconds` for all of them."""
        self.wake.set()
        deadline = self.within(seconds)
        for lane in dict.fromkeys(lanes):
            await self.flush(lane, deadline.seconds_left())

    def mirror_soon(self, mirrored: Mirrored, change: NoteChange | None) -> None:
        """Send changes of the notes to the provider in the background; `change` is the one just made, if any."""
        self.background.begin(self._mirror(mirrored, change), "mirroring the notes")

    def address_soon(self) -> None:
        """Address waiting entries in the background, as `address_waiting` does."""
        if self._addressing is None or self._addressing.done():
            self._addressing = self.background.begin(self.address_waiting(), "addressing entries")

    async def address_waiting(self) -> None:
        """Give addresses to entries that were recorded while the plugin had none for them, and release them."""
        for place, known in (await self.store.read(self.outbox.unaddressed)).items():
            session = "session_id" in known.about
            about = Conversation.from_json(known.about, known.bound) if session else Notebook.from_json(known.about)
            address = await self.find_address(place, about)
            if address is None:
                return  # the plugin has no address now: asked again later
            await self.address_place(Destination(place, about, address), address)

    async def find_address(self, place: str, about: Conversation | Notebook) -> Address | None:
        """Ask the plugin for the address of a place's entries; None if it has none."""

        async def ask(plugin: MemoryPlugin) -> Address:
            return plugin.address(about)

        deadline = self.within(self.deadlines.turn)
        found = await self.call("address", ask, Address, deadline, line=f"address:{place}", flaw=address_flaw)
        return found.value if isinstance(found, Returned) and not address_flaw(found.value) else None

    async def address_place(self, destination: Destination, address: Address) -> None:
        """Record the address of a place. Waiting entries get it, and are released unless they wait for a reply."""
        outbox, now = self.outbox, self.store.clock.now()

        def settle(tx: Tx) -> None:
            if outbox.settle_known(tx, destination, now=now) is not None:
                outbox.join_waiting(tx, destination, address)
                if not destination.asked:
                    outbox.release_by_pace(tx, destination, now=now)

        await self.store.write(settle)
        self.wake.set()

    async def write_beside(self, run: Callable[[Tx], None], what: str) -> None:
        """Commit a change that a turn does not depend on: a failure is only logged."""
        with self.background.logged(what):
            await self.store.write(run)

    async def close(self) -> None:
        """Shut the plugin down within its deadline. Sessions must be closed before."""
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait({self._warming})
        await self.background.settle(self.deadlines.close / 3)
        if self._thread is not None and not self._closed:
            deadline = self.within(self.deadlines.close)
            if self._starting is not None and self._starting.done() and self._starting.result():
                await self.call("shutdown", lambda p: p.shutdown(deadline.wall_time), type(None), deadline)
            elif self._starting is not None:
                self._starting.cancel()
            self._thread.close()
        self._closed = True

    async def _warm_up(self) -> None:
        deadline = self.within(self.deadlines.tool)
        warm_up = methodcaller("warm_up", deadline.wall_time)
        found: HookResult[None] = await self._call_in_time("warm_up", warm_up, type(None), deadline, "warm_up")
        if isinstance(found, Missed):
            log.info("memory provider %s: %s", self.name, found.reason)

    async def _mirror(self, mirrored: Mirrored, change: NoteChange | None) -> None:
        address = await self.find_address(mirrored.place, mirrored.notebook)
        now = self.store.clock.now()
        if await self.store.write(lambda tx: mirror_notes(tx, self.outbox, mirrored, address, change, now=now)):
            self.wake.set()

    async def _call_in_time(
        self, hook: str, run: Hook[T], expect: Expected[T], deadline: Deadline, line: str
    ) -> HookResult[T]:
        if self._closed:
            return Missed(f"{hook} was skipped, the provider was closed", skipped=True)
        if not await self._started(deadline):
            return Missed(f"{hook} was skipped, the provider has not started", skipped=True)
        seconds = deadline.seconds_left()
        if not seconds:
            return Missed(f"{hook} was skipped, the time for memory was used up", skipped=True)
        return await self._running().call(hook, run, line=line, expect=expect, seconds=seconds)

    def _is_out(self) -> bool:
        """Return True if the start has failed and is not retried yet."""
        has_failed = self._starting is not None and self._starting.done() and not self._starting.result()
        return has_failed and self._try_again.seconds_left() > 0

    async def _started(self, deadline: Deadline) -> bool:
        """Start the plugin once for all callers. Return True if it runs; a failed start is retried after a while."""
        started = self._starting
        if started is None or (started.done() and not started.result() and not self._is_out()):
            started = self._starting = asyncio.create_task(self._start())
        if not started.done():
            await asyncio.wait({started}, timeout=deadline.seconds_left())
        if not started.done():
            self.health.missed(START_HOOK, f"{START_HOOK} has not come back")
        return started.done() and started.result()

    async def _start(self) -> bool:
        async def ask(plugin: MemoryPlugin) -> bool:
            is_available = plugin.is_available()
            if is_available is True:
                await plugin.start()
            return is_available

        available = await self._running().call(
            START_HOOK, ask, line=PLUGIN_LINE, expect=bool, seconds=self.deadlines.tool
        )
        if isinstance(available, Returned) and not available.value:
            available = Missed(f"{START_HOOK} reports that it is not configured")
        self.report(START_HOOK, available)
        self._try_again = self.within(RESTART_INTERVAL_SECONDS)
        return isinstance(available, Returned)

    def _running(self) -> PluginThread:
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = PluginThread(lambda: self._make(self._host(loop)))
        return self._thread

    def _trouble(self, about: str, line: str | None) -> None:
        self.report(about, Returned(None) if line is None else Missed(line))

    def _host(self, loop: asyncio.AbstractEventLoop) -> PluginHost:
        assert self._thread is not None, "the plugin is made on its thread"
        here = self._surroundings
        return PluginHost(
            home=here.home,
            profile=here.profile,
            env=here.env,
            is_chosen=here.is_chosen,
            owner_name=here.owner_name,
            store=self.store,
            outbox=self.outbox,
            report_trouble=lambda about, line: loop.call_soon_threadsafe(self._trouble, about, line),
            run_beside=self._thread.spawn,
            wake_delivery=partial(loop.call_soon_threadsafe, self.wake.set),
            begin_asking=None
            if (ask := here.ask_model) is None
            else lambda instructions, text: asyncio.run_coroutine_threadsafe(ask(instructions, text), loop),
        )
