"""Lanes: each chat's messages are handled one after another, many chats side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from hermes.agent.agent import Agent
from hermes.db import queue_items
from hermes.db.engine import Tx
from hermes.db.outcomes import Dead, Outcome
from hermes.db.queue import Claim, Item
from hermes.db.worker import Work
from hermes.errors import SessionBusyError, UsageError
from hermes.events import Failed, Replied
from hermes.gateway.agent_cache import AgentCache, Person
from hermes.gateway.commands import InChat
from hermes.gateway.inbox import Inbox, is_stop
from hermes.gateway.inbox_turn import InboxTurns, Opened
from hermes.gateway.ledger import Ledger
from hermes.gateway.outcome import done_with
from hermes.gateway.part import Part, next_part
from hermes.gateway.platform import Chat, Inbound
from hermes.gateway.remarks import apology
from hermes.logs import SESSION
from hermes.slash.acts import NOT_RUNNING
from hermes.slash.table import TypedCommand
from hermes.store.inbox import said_already
from hermes.store.store import Store

JOINED = 50
"""Waiting messages of a chat that join one turn at most."""


@dataclass(slots=True)
class Lanes(Work):
    """Handles the inbox: messages become turns, commands run."""

    store: Store
    inbox: Inbox
    agents: AgentCache
    ledger: Ledger
    turns: InboxTurns
    stops: dict[str, asyncio.Event] = field(default_factory=dict)

    def stop_turn(self, session_id: str) -> bool:
        """End the running turn or command of a session; False when none runs."""
        running = self.stops.get(session_id)
        if running is not None:
            running.set()
        return running is not None

    async def handle(self, claimed: Claim) -> Sequence[Outcome] | None:
        """One part of a lane; it is settled with its reply."""
        part = next_part(claimed.items)
        if is_stop(part.first.text):  # its effect was at once; here it only leaves the inbox, after a crash
            return [done_with(Replied(part.items[0].session_id or "", 0, NOT_RUNNING))]
        await self._answer(claimed, part)
        return None

    def settling(self, tx: Tx, claimed: Claim, recorded: Sequence[Outcome]) -> None:
        """A message that is given up is not passed over in silence."""
        for item, failed in _given_up(claimed, recorded):
            text = apology(failed, self.inbox.reach_of(tx, Inbound.from_json(item.payload)))
            self.ledger.enqueue(tx, Chat(*item.payload["chat"]), claimed.lane, text, f"note:{item.key}")

    def settled(self, claimed: Claim, recorded: Sequence[Outcome]) -> None:
        for item, failed in _given_up(claimed, recorded):
            self.ledger.wake_delivery.set()
            self.turns.hear([item.key], failed)

    async def _answer(self, claimed: Claim, part: Part) -> None:
        opened = await self.store.write(lambda tx: self._open_session(tx, part))
        session = opened.session
        key = session.session_key or ""
        token = SESSION.set(session.id)
        stop = self.stops[session.id] = asyncio.Event()
        try:
            person = Person(part.first.author_id, part.first.author_alt)
            async with self.agents.use(session, key, opened.scope, person) as agent:
                if part.command is None:
                    await self.turns.run(claimed, part, opened, agent, stop)
                else:
                    await self._run_command(claimed, part, part.command, key, agent, stop)
        finally:
            if self.stops.get(session.id) is stop:
                del self.stops[session.id]
            SESSION.reset(token)

    def _open_session(self, tx: Tx, part: Part) -> Opened:
        """What a part belongs to by now. Its key is the one that it came by: that is what memory is told."""
        key, people = self.inbox.key_of(tx, part.first), self.inbox.people
        session = self.inbox.open_session(tx, key, part.first)
        queue_items.assign(tx, part.items, session.id)
        owners = [people.is_owner(tx, said.chat.platform, said.author_id) for said in part.messages]
        known = said_already(tx, [item.id for item in part.items])
        return Opened(replace(session, session_key=key), people.scope_of(tx, session), tuple(owners), known)

    async def _run_command(
        self, claimed: Claim, part: Part, typed: TypedCommand, key: str, agent: Agent, stop: asyncio.Event
    ) -> None:
        try:
            text = await typed.run(InChat(self.store, self.inbox, agent, key, part.first, stop))
        except (UsageError, SessionBusyError) as error:  # the person can do something about it; we cannot
            text = error.line()
        ending = Replied(agent.session_id, 0, text)
        await self.ledger.settle(claimed, [done_with(ending)], say=text)
        self.turns.hear(part.keys, ending)
        bound = await self.store.read(lambda tx: self.store.routes.lookup(tx, key))
        if bound != agent.session_id:
            self.agents.retire(agent.session_id)


def _given_up(claimed: Claim, recorded: Sequence[Outcome]) -> Iterator[tuple[Item, Failed]]:
    for item, outcome in zip(claimed.items, recorded, strict=False):
        if isinstance(outcome, Dead):
            yield item, Failed(item.session_id or "", "host", f"this message could not be handled: {outcome.reason}")
