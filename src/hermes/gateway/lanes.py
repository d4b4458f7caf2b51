"""Lanes: each chat's messages are handled one after another, many chats side by side."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

from hermes.agent.agent import Agent
from hermes.agent.turn import answer
from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.queue import Claim, Dead, Item, Outcome, Retry, backoff
from hermes.errors import HermesError, StaleError, StoreError
from hermes.events import Accepted, Failed, Replied, Stopped, TextDelta, ToolStarted, TurnEvent
from hermes.gateway.agent_cache import AgentCache, Person
from hermes.gateway.commands import Asked, Command
from hermes.gateway.inbox import NOT_RUNNING, Inbox, is_stop
from hermes.gateway.item_key import INBOX
from hermes.gateway.live_reply import LiveReply
from hermes.gateway.outbound import enqueue_text
from hermes.gateway.outcome import Ending, done_with
from hermes.gateway.part import Part, draft_of, next_part
from hermes.gateway.platform import Chat, Platform
from hermes.logs import SESSION
from hermes.store.inbox import record_messages, said_already
from hermes.store.store import Store
from hermes.types import Message, Session

log = logging.getLogger("hermes.gateway")

TTL = 30.0
POLL = 1.0
JOINED = 50
"""Waiting messages of a chat that join one turn at most."""
DEFECTS = 5
"""Attempts at an item that a defect of ours may spoil before it is put aside."""
BUSY_PAUSE = 1.0


@dataclass(slots=True)
class Lanes:
    """Handles the inbox. `hear` is told every event of a turn, with the keys of the items it answers; how it ended only
    once that is on the disk."""

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

    def stop_turn(self, session_id: str) -> bool:
        """End the running turn of a session; False when none runs."""
        running = self.stops.get(session_id)
        if running is not None:
            running.set()
        return running is not None

    async def run(self) -> None:
        """Handle what comes until cancelled; what is under way then goes on until `drain`."""
        await self.store.write(lambda tx: queue.free_lanes(tx, INBOX, now=self.store.clock.now()))
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
                await self._settle(claim, [])
            raise

    async def _handle(self, claimed: Claim) -> None:
        """One part of a lane. Whatever happens, the claim is settled or its lease runs out."""
        heart = asyncio.create_task(self._keep(claimed))
        try:
            await self._handle_part(claimed, next_part(claimed.items))
        except asyncio.CancelledError:
            await asyncio.shield(self._settle(claimed, []))
            raise
        except StaleError:
            log.warning("lane %s was taken over by another process", claimed.lane)
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
            await self._settle(claimed, [done_with(Replied(part.items[0].session_id or "", 0, NOT_RUNNING))])
            return
        session = await self.store.write(lambda tx: self._open_session(tx, part))
        key = session.session_key or ""
        token = SESSION.set(session.id)
        try:
            person = Person(part.first.author_id, part.first.author_alt)
            async with self.agents.use(session, key, person) as agent:
                if part.command is None:
                    await self._run_turn(claimed, part, session, agent)
                else:
                    await self._run_command(claimed, part, part.command, key, agent)
        finally:
            SESSION.reset(token)

    def _open_session(self, tx: Tx, part: Part) -> Session:
        """The session that a part belongs to by now, with the key that it came by: that is what memory is told."""
        key = self.inbox.key_of(tx, part.first)
        session = self.inbox.open_session(tx, key, part.first)
        queue.assign(tx, part.items, session.id)
        return replace(session, session_key=key)

    async def _put_off(self, claimed: Claim, error: Exception) -> None:
        """Try again later. A defect that does not go away puts the item aside, and that is said."""
        item = claimed.items[0]
        reason = f"{type(error).__name__}: {error}"
        try:
            if isinstance(error, StoreError) or item.attempts < DEFECTS:
                wait = backoff(item.attempts, random.random, base=1.0, cap=60.0)
                await self._settle(claimed, [Retry(self.store.clock.now() + wait, reason)])
                return
            failed = Failed(item.session_id or "", "host", f"this message could not be handled: {reason}")
            await self._settle(claimed, [Dead(reason)], say=f"I could not answer: {failed.message}.")
            self.hear([item.key], failed)
        except HermesError as worse:  # the lease runs out, then the lane is taken again
            log.error("lane %s could not be put off: %s", claimed.lane, worse.line())

    async def _run_command(
        self, claimed: Claim, part: Part, asked: tuple[Command, str], key: str, agent: Agent
    ) -> None:
        command, rest = asked
        text = await command.run(Asked(self.store, self.inbox, agent, key, part.first, rest))
        ending = Replied(agent.session_id, 0, text)
        await self._settle(claimed, [done_with(ending)], say=text)
        self.hear(part.keys, ending)
        bound = await self.store.read(lambda tx: self.store.routes.lookup(tx, key))
        if bound != agent.session_id:
            self.agents.retire(agent.session_id)

    async def _run_turn(self, claimed: Claim, part: Part, session: Session, agent: Agent) -> None:
        known = await self.store.read(lambda tx: said_already(tx, [item.id for item in part.items]))
        new = [(item, draft_of(said)) for item, said in zip(part.items, part.messages, strict=True)]
        new = [(item, draft) for item, draft in new if item.id not in known]
        live = self._show_live(part.first.chat)
        record = _Record(self, claimed, part, session.id, live, [item for item, _ in new], known)
        accepted = not new
        end: Ending | None = None
        stop = self.stops[session.id] = asyncio.Event()
        try:
            async with aclosing(answer(agent, [draft for _, draft in new], stop, record)) as events:
                async for event in events:
                    accepted = accepted or isinstance(event, Accepted)
                    _show(live, event)
                    if isinstance(event, Replied | Stopped | Failed):
                        end = end or event  # what fails after a reply does not undo it
                    if not isinstance(event, Stopped | Failed):
                        self.hear(part.keys, event)
        except _AnsweredError as answered:
            await self._settle_answered(claimed, part, answered)
            return
        finally:
            del self.stops[session.id]
            if live is not None:
                await live.end()
        assert end is not None, "a turn has an end"
        await self._end_turn(claimed, part, end, live, accepted=accepted)

    async def _settle_answered(self, claimed: Claim, part: Part, answered: _AnsweredError) -> None:
        """What was answered while we were away has its reply; what follows it in the lane is next."""
        reply = answered.reply
        ending = Replied(reply.session_id, reply.id, reply.content or "", None, reply.token_count)

        def settle(tx: Tx) -> None:
            queue.settle(tx, claimed, [done_with(ending)] * answered.count, now=self.store.clock.now())
            text, chat = ending.text, part.first.chat
            self.enqueue(tx, chat, claimed.lane, text, f"reply:{reply.id}", session_id=reply.session_id)

        await self.store.write(settle)
        self.hear(part.keys[: answered.count], ending)
        self.wake_delivery.set()

    def _show_live(self, chat: Chat) -> LiveReply | None:
        platform = self.platforms.get(chat.platform)
        if platform is None or chat.chat_type == "api":
            return None
        return LiveReply(platform, chat, self.locks(chat))

    async def _end_turn(
        self, claimed: Claim, part: Part, end: Ending, live: LiveReply | None, *, accepted: bool
    ) -> None:
        """A reply was settled with its own transaction; anything else is settled here."""
        match end:
            case Failed(kind="busy", message=message):
                await self._settle(claimed, [Retry(self.store.clock.now() + BUSY_PAUSE, message)])
            case Failed(message=message) if not accepted:  # it is in the inbox alone, so there it stays
                wait = backoff(claimed.items[0].attempts, random.random, base=1.0, cap=60.0)
                await self._settle(claimed, [Retry(self.store.clock.now() + wait, message)])
            case Failed(message=message):
                text = f"I could not answer: {message}. Your message is kept."
                done = [done_with(end)] * len(part.items)
                await self._settle(claimed, done, say=text, edit_id=live.message_id if live else None)
                self.hear(part.keys, end)
            case Stopped():
                await self._settle(claimed, [done_with(end)] * len(part.items))
                self.hear(part.keys, end)
            case Replied():
                self.wake_delivery.set()

    async def _settle(
        self, claimed: Claim, outcomes: Sequence[Outcome], *, say: str | None = None, edit_id: str | None = None
    ) -> None:
        first = claimed.items[0]

        def settle(tx: Tx) -> None:
            queue.settle(tx, claimed, outcomes, now=self.store.clock.now())
            if say is not None:
                chat = Chat(*first.payload["chat"])
                self.enqueue(tx, chat, claimed.lane, say, f"note:{first.key}", edit_id=edit_id)

        await self.store.write(settle)
        if say is not None:
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
            except StoreError as error:  # the next beat may succeed
                log.warning("lane %s could not be kept: %s", claimed.lane, error.line())


class _AnsweredError(Exception):
    """The first `count` items of a part were said before a crash, and someone has answered them since."""

    def __init__(self, reply: Message, count: int) -> None:
        super().__init__(f"message {reply.id} is the reply")
        self.reply = reply
        self.count = count


@dataclass(slots=True)
class _Record:
    """Settles the inbox in the transaction of the reply. Nothing is said when the first item has its reply already."""

    lanes: Lanes
    claimed: Claim
    part: Part
    session_id: str
    live: LiveReply | None
    fresh: Sequence[Item]
    known: Mapping[int, int]
    """The items that were said before, with their messages."""

    def accepted(self, tx: Tx, messages: Sequence[Message]) -> None:
        self._look_for_reply(tx)
        pairs = [(item.id, message.id) for item, message in zip(self.fresh, messages, strict=True)]
        record_messages(tx, self.session_id, pairs)

    def _look_for_reply(self, tx: Tx) -> None:
        replies: list[Message] = []
        for item in self.part.items:
            said = self.known.get(item.id)
            reply = self.lanes.store.messages.reply_after(tx, self.session_id, said) if said is not None else None
            if reply is None or (replies and reply.id != replies[0].id):
                break
            replies.append(reply)
        if replies:
            raise _AnsweredError(replies[0], len(replies))

    async def concluding(self) -> None:
        if self.live is not None:
            await self.live.end()

    def replied(self, tx: Tx, message: Message) -> None:
        done = done_with(Replied(self.session_id, message.id, ""))
        queue.settle(tx, self.claimed, [done] * len(self.part.items), now=self.lanes.store.clock.now())
        self.lanes.enqueue(
            tx,
            self.part.first.chat,
            self.claimed.lane,
            message.content or "",
            f"reply:{message.id}",
            edit_id=self.live.message_id if self.live is not None else None,
            session_id=self.session_id,
        )


def _show(live: LiveReply | None, event: TurnEvent) -> None:
    if live is None:
        return
    if isinstance(event, TextDelta):
        live.add(event.text)
    elif isinstance(event, ToolStarted):
        live.restart()
