"""Lanes: each chat's messages are handled one after another, many chats side by side."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from dataclasses import dataclass, field, replace

from hermes.agent.agent import Agent
from hermes.db import queue, queue_items
from hermes.db.engine import Tx
from hermes.db.lanes import free_lanes
from hermes.db.outcomes import Dead, Retry
from hermes.db.queue import Claim, backoff
from hermes.errors import HermesError, SessionBusyError, StaleError, StoreError, UsageError
from hermes.events import Failed, Replied
from hermes.gateway.agent_cache import AgentCache, Person
from hermes.gateway.commands import Asked, Command
from hermes.gateway.inbox import NOT_RUNNING, Inbox, is_stop
from hermes.gateway.inbox_turn import InboxTurns
from hermes.gateway.item_key import INBOX
from hermes.gateway.ledger import Ledger
from hermes.gateway.outcome import done_with
from hermes.gateway.part import Part, next_part
from hermes.logs import SESSION
from hermes.store.inbox import said_already
from hermes.store.store import Store
from hermes.types import Session

log = logging.getLogger("hermes.gateway")

TTL = 30.0
POLL = 1.0
JOINED = 50
"""Waiting messages of a chat that join one turn at most."""
DEFECTS = 5
"""Attempts at an item that a defect of ours may spoil before it is put aside."""


@dataclass(slots=True)
class Lanes:
    """Handles the inbox: messages become turns, commands run."""

    store: Store
    inbox: Inbox
    agents: AgentCache
    ledger: Ledger
    turns: InboxTurns
    owner: str
    wake: asyncio.Event
    at_once: int = 64
    stops: dict[str, asyncio.Event] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def stop_turn(self, session_id: str) -> bool:
        """End the running turn or command of a session; False when none runs."""
        running = self.stops.get(session_id)
        if running is not None:
            running.set()
        return running is not None

    async def run(self) -> None:
        """Handle what comes until cancelled; what is under way then goes on until `drain`."""
        await self.store.write(lambda tx: free_lanes(tx, INBOX, now=self.store.clock.now()))
        while True:
            self.wake.clear()
            try:
                claimed = await self._claim()
            except StoreError as error:
                log.error("the inbox cannot be read: %s", error.line())
                claimed = []
            for claim in claimed:
                task = asyncio.create_task(self._handle(claim))
                self._tasks.add(task)
                task.add_done_callback(self._ended)
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL):
                    await self.wake.wait()

    async def drain(self, seconds: float) -> None:
        """Let turns come to an end; those that do not are given up and begin again after the restart."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _claim(self) -> list[Claim]:
        """Every lane that is due, as many as there is room for, in one transaction. A lane taken while we are being
        cancelled is handled all the same: nobody else could."""
        room = self.at_once - len(self._tasks)

        def take(tx: Tx) -> list[Claim]:
            now = self.store.clock.now()
            taken: list[Claim] = []
            while len(taken) < room and (claim := queue.claim(tx, INBOX, self.owner, ttl=TTL, now=now, limit=JOINED)):
                taken.append(claim)
            return taken

        taking = asyncio.ensure_future(self.store.write(take))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            for claim in await taking:
                await self._give_back(claim)
            raise

    async def _handle(self, claimed: Claim) -> None:
        """One part of a lane. Whatever happens, the claim is settled or its lease runs out."""
        heart = asyncio.create_task(self._keep(claimed))
        try:
            await self._handle_part(claimed, next_part(claimed.items))
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(claimed))
            raise
        except StaleError:
            log.warning("lane %s was taken over by another process", claimed.lane)
        except StoreError as error:
            log.error("lane %s is put off: %s", claimed.lane, error.line())
            await self._put_off(claimed, error)
        except Exception as error:  # whatever it was, it must not end the gateway nor the lane
            log.exception("lane %s failed", claimed.lane)
            await self._put_off(claimed, error)
        finally:
            heart.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.wake.set()  # its lane may have more, and there is room

    async def _handle_part(self, claimed: Claim, part: Part) -> None:
        if is_stop(part.first.text):  # its effect was at once; here it only leaves the inbox, after a crash
            await self.ledger.settle(claimed, [done_with(Replied(part.items[0].session_id or "", 0, NOT_RUNNING))])
            return
        session, known = await self.store.write(lambda tx: self._open_session(tx, part))
        key = session.session_key or ""
        token = SESSION.set(session.id)
        stop = self.stops[session.id] = asyncio.Event()
        try:
            person = Person(part.first.author_id, part.first.author_alt)
            async with self.agents.use(session, key, person) as agent:
                if part.command is None:
                    await self.turns.run(claimed, part, known, agent, stop)
                else:
                    await self._run_command(claimed, part, part.command, key, agent, stop)
        finally:
            if self.stops.get(session.id) is stop:
                del self.stops[session.id]
            SESSION.reset(token)

    def _open_session(self, tx: Tx, part: Part) -> tuple[Session, dict[int, int]]:
        """The session that a part belongs to by now, with the key that it came by: that is what memory is told. And
        those of its items that were said before a crash, with their messages."""
        key = self.inbox.key_of(tx, part.first)
        session = self.inbox.open_session(tx, key, part.first)
        queue_items.assign(tx, part.items, session.id)
        return replace(session, session_key=key), said_already(tx, [item.id for item in part.items])

    async def _give_back(self, claimed: Claim) -> None:
        """Must not raise: what cannot be given back is taken again when its lease has run out, or is settled."""
        try:
            await self.ledger.settle(claimed, [])
        except StaleError:
            log.info("lane %s was settled or taken over before it could be given back", claimed.lane)
        except StoreError as error:
            log.error("lane %s could not be given back: %s", claimed.lane, error.line())

    async def _put_off(self, claimed: Claim, error: Exception) -> None:
        """Try again later. A defect that does not go away puts the item aside, and that is said."""
        item = claimed.items[0]
        reason = f"{type(error).__name__}: {error}"
        try:
            if isinstance(error, StoreError) or item.attempts < DEFECTS:
                wait = backoff(item.attempts, random.random, base=1.0, cap=60.0)
                await self.ledger.settle(claimed, [Retry(self.store.clock.now() + wait, reason)])
                return
            failed = Failed(item.session_id or "", "host", f"this message could not be handled: {reason}")
            await self.ledger.settle(claimed, [Dead(reason)], say=f"I could not answer: {failed.message}.")
            self.turns.hear([item.key], failed)
        except HermesError as worse:  # the lease runs out, then the lane is taken again
            log.error("lane %s could not be put off: %s", claimed.lane, worse.line())

    async def _run_command(
        self, claimed: Claim, part: Part, asked: tuple[Command, str], key: str, agent: Agent, stop: asyncio.Event
    ) -> None:
        command, rest = asked
        try:
            text = await command.run(Asked(self.store, self.inbox, agent, key, part.first, rest, stop))
        except (UsageError, SessionBusyError) as error:  # the person can do something about it; we cannot
            text = error.line()
        ending = Replied(agent.session_id, 0, text)
        await self.ledger.settle(claimed, [done_with(ending)], say=text)
        self.turns.hear(part.keys, ending)
        bound = await self.store.read(lambda tx: self.store.routes.lookup(tx, key))
        if bound != agent.session_id:
            self.agents.retire(agent.session_id)

    async def _keep(self, claimed: Claim) -> None:
        while True:
            await self.store.clock.sleep(TTL / 3)
            try:
                await self.store.write(lambda tx: queue.heartbeat(tx, claimed, ttl=TTL, now=self.store.clock.now()))
            except StaleError:
                return
            except StoreError as error:  # the next beat may succeed
                log.warning("lane %s could not be kept: %s", claimed.lane, error.line())
