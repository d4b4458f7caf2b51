"""Lanes: each chat's messages are handled one after another, many chats side by side."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from hermes.agent.agent import Agent
from hermes.agent.lane import INBOX
from hermes.agent.turn import answer
from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.queue import Claim, Dead, Done, Item, Outcome, Retry
from hermes.errors import StaleError
from hermes.events import Failed, Replied, Stopped, TextDelta, ToolStarted, TurnEvent
from hermes.gateway.agent_cache import AgentCache
from hermes.gateway.commands import Asked, Command, find_command
from hermes.gateway.inbox import STOP, Inbox
from hermes.gateway.live_reply import LiveReply
from hermes.gateway.outbound import enqueue_text
from hermes.gateway.platform import Chat, Inbound, Platform
from hermes.logs import SESSION
from hermes.store.inbox import record_messages, said_already
from hermes.store.store import Store
from hermes.types import Draft, Message, Session

log = logging.getLogger("hermes.gateway")

TTL = 30.0
POLL = 1.0
JOINED = 50
"""Waiting messages of a chat that join one turn at most."""


@dataclass(frozen=True, slots=True)
class Part:
    """Inbox items that are handled together: messages for one turn, or one command."""

    items: tuple[Item, ...]
    messages: tuple[Inbound, ...]
    command: tuple[Command, str] | None = None

    @property
    def first(self) -> Inbound:
        return self.messages[0]


def next_part(items: Sequence[Item]) -> Part:
    """What comes next in a lane: on chat platforms all messages up to a command, over the API one request."""
    messages = [Inbound.from_json(item.payload) for item in items]
    if (command := find_command(messages[0].text)) is not None:
        return Part((items[0],), (messages[0],), command)
    count = 1
    if messages[0].chat.chat_type != "api":
        while count < len(items) and find_command(messages[count].text) is None:
            count += 1
    return Part(tuple(items[:count]), tuple(messages[:count]))


@dataclass(slots=True)
class Lanes:
    """Handles the inbox. `hear` is told every event of a turn, with the keys of the items it answers."""

    store: Store
    inbox: Inbox
    agents: AgentCache
    platforms: Mapping[str, Platform]
    locks: Callable[[Chat], asyncio.Lock]
    owner: str
    wake: asyncio.Event
    wake_delivery: asyncio.Event
    hear: Callable[[Sequence[str], TurnEvent], None]
    at_once: int = 64
    stops: dict[str, asyncio.Event] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def stop_turn(self, key: str) -> bool:
        """End the running turn of a session key; False when none runs."""
        running = self.stops.get(key)
        if running is not None:
            running.set()
        return running is not None

    async def run(self) -> None:
        """Handle what comes until cancelled; what is under way then goes on until `drain`."""
        await self.store.write(lambda tx: queue.free_lanes(tx, INBOX, now=self.store.clock.now()))
        room = asyncio.Semaphore(self.at_once)
        while True:
            self.wake.clear()
            await room.acquire()
            claimed = await self.store.write(self._claim)
            if claimed is None:
                room.release()
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL):
                        await self.wake.wait()
                continue
            task = asyncio.create_task(self._handle(claimed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: room.release())

    async def drain(self, seconds: float) -> None:
        """Let turns come to an end; those that do not are given up and begin again after the restart."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _claim(self, tx: Tx) -> Claim | None:
        return queue.claim(tx, INBOX, self.owner, ttl=TTL, now=self.store.clock.now(), limit=JOINED)

    async def _handle(self, claimed: Claim) -> None:
        """One part of a lane. Whatever happens, the claim is settled or its lease runs out."""
        part = next_part(claimed.items)
        if part.first.text.strip() == STOP:  # its effect was at once; here it only leaves the inbox
            await self._settle(claimed, [Done()])
            return
        heart = asyncio.create_task(self._keep(claimed))
        try:
            key = self.inbox.key_of(part.first)
            session = await self.store.write(lambda tx: self.inbox.open_session(tx, key, part.first))
            token = SESSION.set(session.id)
            try:
                person = (part.first.author_id, part.first.author_alt)
                async with self.agents.use(session, key, person) as agent:
                    await self._work(claimed, part, key, session, agent)
            finally:
                SESSION.reset(token)
        except asyncio.CancelledError:
            await asyncio.shield(self._settle(claimed, []))
            raise
        except StaleError:
            log.warning("lane %s was taken over by another process", claimed.lane)
        except Exception as error:
            log.exception("lane %s failed", claimed.lane)
            reason = f"{type(error).__name__}: {error}"
            gone = claimed.items[0].attempts >= 5
            await self._settle(claimed, [Dead(reason) if gone else Retry(self.store.clock.now() + 5.0, reason)])
        finally:
            heart.cancel()
            self.wake.set()

    async def _work(self, claimed: Claim, part: Part, key: str, session: Session, agent: Agent) -> None:
        if part.command is None:
            await self._run_turn(claimed, part, key, session, agent)
            return
        command, rest = part.command
        text = await command.run(Asked(self.store, self.inbox, agent, key, part.first, rest))
        self.hear([item.key for item in part.items], Replied(agent.session_id, 0, text))
        await self._settle(claimed, [Done()], say=(part.first.chat, key, text))

    async def _run_turn(self, claimed: Claim, part: Part, key: str, session: Session, agent: Agent) -> None:
        stop = self.stops[key] = asyncio.Event()
        keys = [item.key for item in part.items]
        platform = self.platforms.get(part.first.chat.platform)
        shows = platform is not None and part.first.chat.chat_type != "api"
        live = LiveReply(platform, part.first.chat, self.locks(part.first.chat)) if platform and shows else None
        record = _Record(self, claimed, part, key, session.id, live)
        new = await self.store.read(lambda tx: said_already(tx, [item.id for item in part.items]))
        drafts = [_draft(m) for item, m in zip(part.items, part.messages, strict=True) if item.id not in new]
        record.fresh = [item for item in part.items if item.id not in new]
        last: TurnEvent | None = None
        try:
            async with aclosing(answer(agent, drafts, stop, record)) as events:
                async for event in events:
                    last = event
                    _show(live, event)
                    self.hear(keys, event)
        finally:
            del self.stops[key]
            if live is not None:
                await live.end()
        await self._end_turn(claimed, part, key, last, live)

    async def _end_turn(
        self, claimed: Claim, part: Part, key: str, last: TurnEvent | None, live: LiveReply | None
    ) -> None:
        """A reply was settled with its own transaction; anything else is settled here."""
        done = [Done()] * len(part.items)
        match last:
            case Replied():
                self.wake_delivery.set()
            case Failed(kind="busy", message=message):
                await self._settle(claimed, [Retry(self.store.clock.now() + 1.0, message)])
            case Failed(message=message):
                say = (part.first.chat, key, f"I could not answer: {message}. Your message is kept.")
                await self._settle(claimed, done, say=say, edit_id=live.message_id if live else None)
            case Stopped() | _:
                await self._settle(claimed, done)

    async def _settle(
        self,
        claimed: Claim,
        outcomes: Sequence[Outcome],
        *,
        say: tuple[Chat, str, str] | None = None,
        edit_id: str | None = None,
    ) -> None:
        def settle(tx: Tx) -> None:
            now = self.store.clock.now()
            queue.settle(tx, claimed, outcomes, now=now)
            if say is not None:
                self.enqueue(tx, *say, f"note:{claimed.items[0].key}", edit_id=edit_id)

        await self.store.write(settle)
        self.wake_delivery.set()

    def enqueue(
        self,
        tx: Tx,
        chat: Chat,
        lane: str,
        text: str,
        key: str,
        *,
        edit_id: str | None = None,
        session_id: str | None = None,
    ) -> None:
        """Queue a text for a chat; a request over the API hears of it by itself."""
        platform = self.platforms.get(chat.platform)
        if chat.chat_type == "api" or platform is None:
            return
        now, longest = self.store.clock.now(), platform.longest_message
        enqueue_text(tx, chat, lane, key, text, now=now, longest=longest, edit_id=edit_id, session_id=session_id)

    async def _keep(self, claimed: Claim) -> None:
        while True:
            await self.store.clock.sleep(TTL / 3)
            try:
                await self.store.write(lambda tx: queue.heartbeat(tx, claimed, ttl=TTL, now=self.store.clock.now()))
            except StaleError:
                return


@dataclass(slots=True)
class _Record:
    """Settles the inbox in the transaction of the reply."""

    lanes: Lanes
    claimed: Claim
    part: Part
    key: str
    session_id: str
    live: LiveReply | None
    fresh: list[Item] = field(default_factory=list)

    def accepted(self, tx: Tx, messages: Sequence[Message]) -> None:
        pairs = [(item.id, message.id) for item, message in zip(self.fresh, messages, strict=True)]
        record_messages(tx, self.session_id, pairs)

    def replied(self, tx: Tx, message: Message) -> None:
        edit_id = self.live.close() if self.live is not None else None
        queue.settle(tx, self.claimed, [Done()] * len(self.part.items), now=self.lanes.store.clock.now())
        self.lanes.enqueue(
            tx,
            self.part.first.chat,
            self.key,
            message.content or "",
            f"reply:{message.id}",
            edit_id=edit_id,
            session_id=self.session_id,
        )


def _draft(message: Inbound) -> Draft:
    named = message.author_name if message.chat.chat_type in ("group", "channel") else None
    return Draft(
        "user",
        message.text,
        platform_message_id=message.message_id,
        author_id=message.author_id,
        author_name=named,
    )


def _show(live: LiveReply | None, event: TurnEvent) -> None:
    if live is None:
        return
    if isinstance(event, TextDelta):
        live.add(event.text)
    elif isinstance(event, ToolStarted):
        live.restart()
