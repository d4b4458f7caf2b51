"""A running gateway: its platforms, lanes and delivery, from start to a shutdown that loses no message."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias
from weakref import WeakValueDictionary

from msgspec import Struct

from hermes.agent.agent import Agent
from hermes.agent.leftovers import LEFTOVERS_INTERVAL_SECONDS, process_leftovers
from hermes.db import leases, queue_items
from hermes.db.engine import Tx
from hermes.db.leases import Lease, new_owner
from hermes.db.queue_items import Isolation
from hermes.db.worker import QueueWorker, Work, WorkerOptions
from hermes.errors import GatewayRunningError, StaleError, StoreError
from hermes.events import GONE, Failed, TurnEvent
from hermes.gateway import outbound
from hermes.gateway.access import Access
from hermes.gateway.agent_cache import AgentCache, Person
from hermes.gateway.inbox import INBOX, Inbox, Received
from hermes.gateway.inbox_record import Ledger, TurnEnding, recall_ending
from hermes.gateway.lanes import MAX_MESSAGES_PER_TURN, InboxTurns, Lanes
from hermes.gateway.notices import NoticeOptions, StoreWatch
from hermes.gateway.outbound import OUTBOUND, OutboundWork
from hermes.gateway.platform import Chat, Inbound, Intake, Moved, Platform
from hermes.memory.deliveries import Deliveries
from hermes.scope import Scope
from hermes.store import inbox as inbox_rows
from hermes.store.chats import Chats
from hermes.store.inbox import LEASE, let_go, stop_requested
from hermes.store.people import People
from hermes.store.store import Store
from hermes.types import Session

log = logging.getLogger("hermes.gateway")

ALREADY_RUNS = "a gateway is already running for this home"
GATEWAY_LEASE_SECONDS = 15.0
DEFAULT_DRAIN_SECONDS = 20.0
PLATFORM_RESTART_SECONDS = 5.0
STATE_WORDS = {"ok": "is up", "failing": "fails and is retried"}
"""The words for a platform's state in the terminal."""
LEASE_RENEWAL_SECONDS = 5
"""Time between two renewals of the gateway's lease."""
MESSAGE_KEY_RETENTION_SECONDS = 7 * 86_400.0
"""How long the key of a handled message is kept. A message that a sender repeats later counts as a new one."""

TurnListener: TypeAlias = Callable[[TurnEvent], None]


class GatewayOptions(Struct, frozen=True):
    """Options of a gateway."""

    agent_name: str = "main"
    allow: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    agent_replies: int = 6
    """Maximum number of replies to other agents in a row while no person speaks."""
    at_once: int = 64
    drain: float = DEFAULT_DRAIN_SECONDS
    people: People = field(default_factory=People)
    notices: NoticeOptions = field(default_factory=NoticeOptions)


class Gateway:
    """The gateway of one home; a second one is refused. A platform subscribes with `listen` to the events of a
    message."""

    def __init__(
        self, store: Store, agents: AgentCache, options: GatewayOptions, deliveries: Deliveries | None = None
    ) -> None:
        self._store = store
        self._agents = agents
        self._options = options
        self._deliveries = deliveries
        self._owner = new_owner()
        self._wake, self._wake_delivery = asyncio.Event(), asyncio.Event()
        self._locks: WeakValueDictionary[Chat, asyncio.Lock] = WeakValueDictionary()
        self._listeners: dict[str, list[TurnListener]] = {}
        self.ending = False
        """True during the shutdown: new messages are refused."""
        self._platforms: dict[str, Platform] = {}
        self._watch = StoreWatch(store, self._fail_open_requests)
        access = Access(options.allow, options.agents, secrets.choice)
        chats = Chats(store, options.agent_name, options.people)
        self._inbox = Inbox(store, chats, access, stop=self._stop_turn, wake=self._wake)
        ledger = Ledger(store, self._platforms, self._wake_delivery)
        turns = InboxTurns(ledger, self._platforms, self._lock_of, self._publish, options.notices)
        self._lanes = Lanes(store, self._inbox, agents, ledger, turns, options.agent_replies)
        self._isolation = Isolation() if deliveries is None else deliveries.isolation
        side_by_side = WorkerOptions(batch=MAX_MESSAGES_PER_TURN, at_once=options.at_once)
        self._answering = self._worker(INBOX, self._lanes, side_by_side, self._wake)
        sending = OutboundWork(store.clock, self._platforms, self._lock_of, random.random)
        self._delivery = self._worker(OUTBOUND, sending, outbound.OPTIONS, self._wake_delivery)

    def _worker(self, name: str, work: Work, options: WorkerOptions, wake: asyncio.Event) -> QueueWorker:
        store, owner = self._store, self._owner
        return QueueWorker(
            store,
            store.clock,
            name,
            work,
            owner=owner,
            options=options,
            chance=random.random,
            wake=wake,
            on_trouble=self._watch.hear,
            isolation=self._isolation,
        )

    async def receive(self, message: Inbound) -> Received:
        """Accept a message; see `Inbox.receive`. A refusal is sent at once. Raises StoreError if the message cannot be
        stored, without trying while the store is known to fail."""
        self._watch.check()
        try:
            received = await self._inbox.receive(message)
        except StoreError as error:
            self._watch.hear(error)
            raise
        if received.verdict.refusal or received.stopped is not None:
            self._wake_delivery.set()
        return received

    async def move(self, moved: Moved) -> None:
        """Record that a chat has another id; see `Inbox.move`."""
        await self._inbox.move(moved)

    def reading_agent(self, session: Session, scope: Scope, person: Person) -> AbstractAsyncContextManager[Agent]:
        """Return an agent that reads memory for a conversation that is not stored; `session` only names it."""
        return self._agents.use(session, session.session_key or "", scope, person)

    @property
    def trouble(self) -> StoreError | None:
        """The store's error while it cannot be written and messages are refused; None otherwise."""
        return self._watch.trouble

    def _fail_open_requests(self, error: StoreError) -> None:
        """End all waiting requests: their answers cannot be stored."""
        self._publish(list(self._listeners), Failed("", "store", f"{error.message}; the message is kept"))

    async def ending_of(self, item_key: str) -> TurnEnding | None:
        """Return how the turn of an inbox item ended, or None while it runs or waits."""

        def look(tx: Tx) -> TurnEnding | None:
            item = queue_items.find(tx, INBOX, item_key)
            return Failed("", "gone", GONE) if item is None else recall_ending(tx, self._store, item)

        return await self._store.read(look)

    @contextmanager
    def listen(self, item_key: str, hear: TurnListener) -> Iterator[None]:
        """Pass every event of the turn that answers an inbox item to `hear`, inside the `with` block."""
        self._listeners.setdefault(item_key, []).append(hear)
        try:
            yield
        finally:
            self._listeners[item_key].remove(hear)
            if not self._listeners[item_key]:
                del self._listeners[item_key]

    async def run(
        self,
        platforms: Sequence[Platform],
        stopping: asyncio.Event,
        tell: Callable[[str], None] = log.warning,
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve until `stopping` is set, then drain. Unfinished messages are answered after the next start.

        `begun` is called once this process holds the gateway's lease; GatewayRunningError is raised before that. `tell`
        gets a line for the terminal with each platform's address, and when it starts to fail or recovers.
        """
        lease = await self._store.write(self._acquire_lease)
        begun()
        self._platforms.update({platform.name: platform for platform in platforms})
        if self._deliveries is not None:
            self._deliveries.start()
        workers = [
            asyncio.create_task(self._answering.run(), name="lanes"),
            asyncio.create_task(self._delivery.run(), name="delivery"),
            asyncio.create_task(self._hold_lease(lease, stopping), name="lease"),
        ]
        intakes = [asyncio.create_task(self._serve(platform, tell), name=platform.name) for platform in platforms]
        intakes.append(asyncio.create_task(self._review_leftovers(), name="reviews"))
        waiting = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({waiting, *workers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            await self._shut_down(lease, workers, intakes)
        for worker in workers:
            if worker.done() and not worker.cancelled() and (error := worker.exception()):
                raise error

    async def _review_leftovers(self) -> None:
        """Review messages that no review has read, from before the last end or after a failure, and title sessions."""

        @asynccontextmanager
        async def use(session: Session) -> AsyncIterator[Agent]:
            scope = await self._store.read(lambda tx: self._options.people.scope_of(tx, session))
            async with self._agents.use(session, session.session_key or "", scope, Person(session.user_id)) as agent:
                yield agent

        started = self._store.clock.now()
        while True:
            await process_leftovers(self._store, lambda session: session.session_key is not None, use, started)
            await self._store.clock.sleep(LEFTOVERS_INTERVAL_SECONDS)

    async def _serve(self, platform: Platform, tell: Callable[[str], None]) -> None:
        """Run a platform. A failed one is reported and started again; the others are not affected."""
        intake = _IntakeOf(self, self._inbox, platform.name, tell)
        for failures in count():
            await self._inbox.report(platform.name, "starting", "")
            try:
                await platform.run(intake)
                return
            except Exception as error:
                log.exception("platform %s failed", platform.name)
                reason = f"{type(error).__name__}: {error}"
                if failures == 0:
                    again = f"retried every {PLATFORM_RESTART_SECONDS:.0f} s"
                    tell(f"gateway: {platform.name} failed: {reason} ({again})")
                await self._inbox.report(platform.name, "failing", reason)
            await self._store.clock.sleep(PLATFORM_RESTART_SECONDS)

    async def _shut_down(
        self, lease: Lease, workers: Sequence[asyncio.Task[None]], intakes: Sequence[asyncio.Task[None]]
    ) -> None:
        """Refuse new messages, finish running turns within the deadline, and leave the rest in the queues."""
        self.ending = True
        answering, delivering, _ = workers
        for task in (*intakes, answering):
            task.cancel()
        await asyncio.wait({answering})
        await self._answering.drain(self._options.drain)
        self._publish(list(self._listeners), Failed("", "ending", "the gateway is shutting down; the message is kept"))
        if intakes:
            await asyncio.wait(intakes)
        delivering.cancel()
        await asyncio.wait({delivering})
        await self._delivery.finish(self._options.drain / 2)
        await self._delivery.drain(0.0)
        for task in workers:
            task.cancel()
        await asyncio.wait(set(workers))
        await self._agents.close()
        if self._deliveries is not None:
            await self._deliveries.finish(self._options.drain / 2)
            await self._deliveries.provider.close()
        try:
            await self._store.write(lambda tx: let_go(tx, lease))
        except StoreError as error:  # the lease expires by itself
            log.warning("could not release the gateway's lease: %s", error.line())

    def _acquire_lease(self, tx: Tx) -> Lease:
        lease = leases.acquire(tx, LEASE, self._owner, ttl=GATEWAY_LEASE_SECONDS, now=self._store.clock.now())
        if lease is None:
            raise GatewayRunningError(ALREADY_RUNS)
        inbox_rows.clear_status(tx)
        return lease

    async def _hold_lease(self, lease: Lease, stopping: asyncio.Event) -> None:
        """Renew the gateway's lease, look for a request to stop, and prune queues and agents."""
        for second in count(1):
            await self._store.clock.sleep(1.0)
            try:
                if second % LEASE_RENEWAL_SECONDS == 0:
                    await self._store.write(lambda tx: self._renew(tx, lease))
                if await self._store.read(stop_requested):
                    stopping.set()
            except StaleError:
                log.error("another gateway has taken over this home; this one stops")
                stopping.set()
                return
            except StoreError as error:  # the next beat may succeed
                self._watch.hear(error)
            await self._watch.look()
            self._agents.evict()

    def _renew(self, tx: Tx, lease: Lease) -> None:
        now = self._store.clock.now()
        leases.renew(tx, lease, ttl=GATEWAY_LEASE_SECONDS, now=now)
        for name in (INBOX, OUTBOUND):
            queue_items.prune(tx, name, before=now - MESSAGE_KEY_RETENTION_SECONDS)

    def _stop_turn(self, session_id: str) -> bool:
        return self._lanes.stop_turn(session_id)

    def _publish(self, keys: Sequence[str], event: TurnEvent) -> None:
        for key in keys:
            for hear in tuple(self._listeners.get(key, ())):
                hear(event)

    def _lock_of(self, chat: Chat) -> asyncio.Lock:
        return self._locks.setdefault(chat, asyncio.Lock())


@dataclass(slots=True)
class _IntakeOf(Intake):
    gateway: Gateway
    inbox: Inbox
    platform: str
    tell: Callable[[str], None]
    printed_state: str = ""
    """The state that was last printed."""

    async def receive(self, message: Inbound) -> None:
        await self.gateway.receive(message)

    async def move(self, moved: Moved) -> None:
        await self.gateway.move(moved)

    async def read_positions(self) -> dict[str, str]:
        return await self.inbox.store.read(lambda tx: inbox_rows.read_positions(tx, self.platform))

    async def write_positions(self, positions: Mapping[str, str | None]) -> None:
        await self.inbox.store.write(lambda tx: inbox_rows.write_positions(tx, self.platform, positions))

    async def report(self, part: str, state: str, detail: str) -> None:
        await self.inbox.report(part, state, detail)
        if state in STATE_WORDS and state != self.printed_state:
            self.printed_state = state
            self.tell(f"gateway: {part} {STATE_WORDS[state]}: {detail}")
