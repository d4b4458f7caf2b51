"""Lanes: the messages of each chat are handled in order, and chats in parallel.

claim ── batch ─┬─ turn: shown as a preview, events to listeners ─────┬─ settled at its end
                └─ command ───────────────────────────────────────────┘

Slash commands in chats. They run in the order of their lane, except those that overtake, such as `/stop`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.agent import Agent
from hermes.agent.turn import answer
from hermes.agent.undo import retry
from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.queue import Claim, Dead, Item, ItemOutcome, Retry, backoff
from hermes.db.worker import Work
from hermes.errors import HomeError, NoteError, ProviderError, SessionBusyError, UsageError
from hermes.events import GONE, Accepted, Failed, Replied, Stopped, TextDelta, ToolStarted, TurnEvent, Waiting
from hermes.gateway.agent_cache import AgentCache, Person
from hermes.gateway.inbox import Inbox, OpenedSession
from hermes.gateway.inbox_record import (
    AnsweredError,
    Batch,
    DroppedError,
    InboxRecord,
    Ledger,
    TurnEnding,
    done_with,
    draft_of,
    is_stop,
    next_batch,
)
from hermes.gateway.notices import NoticeOptions, TurnNotices, apology, may_hear
from hermes.gateway.outbound import LiveReply
from hermes.gateway.platform import Chat, Inbound, Platform
from hermes.logs import SESSION
from hermes.scope import OWNER, Group
from hermes.slash.acts import NOT_RUNNING
from hermes.slash.context import Again, Answer, Say, Surface
from hermes.slash.table import TypedCommand
from hermes.store.held_lease import UNSAID, WAITING
from hermes.store.inbox import is_followed, record_messages, said_already
from hermes.store.store import Store
from hermes.types import Draft, Message

SESSION_IS_NAMED = (
    "Your program names this session, so it stays the same one: begin a new chat there, or use another session id."
)


class InChat(Struct, frozen=True):
    """The context of a command in a chat (implements `CommandContext`)."""

    store: Store
    inbox: Inbox
    agent: Agent
    key: str
    message: Inbound
    stop: asyncio.Event
    cause: str
    is_owner: bool
    surface: Surface = "chat"
    console: None = None

    async def place(self) -> Agent:
        return self.agent

    def may_take_back(self, message: Message) -> bool:
        """Return True if the author may undo a message: the owner any message, others their own."""
        if self.is_owner:
            return True
        if message.author_id is not None:
            return message.author_id == self.message.author_id
        return not (
            message.author_is_owner or isinstance(self.agent.scope, Group)
        )  # rows of other versions name nobody

    async def begin_session(self) -> str:
        if self.message.session_id is not None:
            return SESSION_IS_NAMED
        return f"A new session begins: {await self.store.write(self._begin)}. What was said before is kept."

    def _begin(self, tx: Tx) -> str:
        """Begin a new session, unless the present one is empty: a `/new` that runs again after a crash must not begin a
        second one."""
        now = self.store.clock.now()
        bound = self.inbox.chats.open_session(tx, self.key, self.message, now=now)
        if self.store.messages.last_id(tx, bound.id) == 0:
            return bound.id
        self.store.sessions.end(tx, bound.id, "session_reset", now=now)
        session = self.inbox.chats.new_session(tx, bound.session_key or self.key, self.message, now=now)
        self.store.routes.bind(tx, self.key, session.id, now=now)
        return session.id


log = logging.getLogger("hermes.gateway")

BUSY_RETRY_SECONDS = 1.0
NOT_NOW = "That cannot be done now."
CHAIN_ENDED = "(I have answered other agents {replies} times in a row, and wait until a person speaks.)"
MESSAGE_KEPT = "The message is stored and will be answered; repeat the request with its Idempotency-Key"

Hear: TypeAlias = Callable[[Sequence[str], TurnEvent], None]
"""Called with every event of a turn and the keys of the items that the turn answers."""


class InboxTurns(Struct, frozen=True):
    """Runs the turns of inbox items. The end of a turn is published only after its commit."""

    ledger: Ledger
    platforms: Mapping[str, Platform]
    locks: Callable[[Chat], asyncio.Lock]
    hear: Hear
    notices: NoticeOptions

    async def run(self, claimed: Claim, batch: Batch, opened: OpenedSession, agent: Agent, stop: asyncio.Event) -> None:
        known, said = opened.known, zip(batch.items, batch.messages, opened.owners, strict=True)
        new = [(item, draft_of(one, is_owner=is_owner)) for item, one, is_owner in said if item.id not in known]
        live = self._show_live(batch.first.chat)
        notices, items = TurnNotices(self.notices, batch.first.chat, opened.scope), [item for item, _ in new]
        record = InboxRecord(self.ledger, claimed, batch, agent.session_id, live, items, known, notices)
        accepted = not new
        end: TurnEnding | None = None
        turn = (
            answer(agent, [draft for _, draft in new], stop, record)
            if batch.again is None
            else retry(agent, batch.again.cause, stop, record)
        )
        try:
            async with aclosing(turn) as events:
                async for event in events:
                    accepted = accepted or isinstance(event, Accepted)
                    _show(live, event)
                    notices.hear(event)
                    if isinstance(event, Waiting):
                        await self._announce_wait(claimed, batch)
                    if isinstance(event, Replied | Stopped | Failed):
                        end = end or event  # a failure after the reply does not undo it
                    if not isinstance(event, Stopped | Failed) and may_hear(event, opened.scope):
                        self.hear(batch.keys, event)
        except AnsweredError as answered:
            await self._settle_answered(claimed, batch, answered)
            return
        except DroppedError:
            await self.ledger.settle(claimed, [])
            self.hear(batch.keys, Failed(agent.session_id, "gone", GONE))
            return
        finally:
            if live is not None:
                await live.end()
        assert end is not None, "a turn has an end"
        await self._end_turn(claimed, batch, end, record, accepted=accepted)

    async def _settle_answered(self, claimed: Claim, batch: Batch, answered: AnsweredError) -> None:
        """Settle the items that got their reply before a crash. The items behind them are claimed next."""
        reply, store = answered.reply, self.ledger.store
        ending = Replied(reply.session_id, reply.id, reply.content or "", None, reply.token_count)

        def settle(tx: Tx) -> None:
            queue.settle(tx, claimed, [done_with(ending)] * answered.count, now=store.clock.now())
            text, chat = ending.text, batch.first.chat
            self.ledger.enqueue(tx, chat, claimed.lane, text, f"reply:{reply.id}", session_id=reply.session_id)

        await store.write(settle)
        self.hear(batch.keys[: answered.count], ending)
        self.ledger.wake_delivery.set()

    async def _announce_wait(self, claimed: Claim, batch: Batch) -> None:
        """Send the chat the reason for the wait, once for any number of tries."""
        text, key = f"{WAITING} /stop ends the wait.", f"waiting:{batch.keys[0]}"
        await self.ledger.store.write(lambda tx: self.ledger.enqueue(tx, batch.first.chat, claimed.lane, text, key))
        self.ledger.wake_delivery.set()

    def _show_live(self, chat: Chat) -> LiveReply | None:
        platform = self.platforms.get(chat.platform)
        if platform is None or chat.chat_type == "api":
            return None
        return LiveReply(platform, chat, self.locks(chat))

    async def _end_turn(
        self, claimed: Claim, batch: Batch, end: TurnEnding, record: InboxRecord, *, accepted: bool
    ) -> None:
        """Settle a turn without a reply. A reply is settled in its own transaction."""
        ledger, live = self.ledger, record.live
        notice, done = record.notices.line if accepted else "", [done_with(end)] * len(batch.items)
        match end:
            case Failed(kind="busy", message=message):
                await ledger.settle(claimed, [Retry(self._time_in(BUSY_RETRY_SECONDS), message)])
                if not accepted:  # the HTTP request has waited long enough
                    self.hear(batch.keys, replace(end, message=f"{message}. {MESSAGE_KEPT}"))
            case Failed(kind="gone"):
                await ledger.settle(claimed, done, say=apology(end, record.notices.scope))
                self.hear(batch.keys, end)
            case Failed(message=message) if not accepted:  # stored in the inbox only: try again later
                wait = backoff(claimed.items[0].attempts, random.random, base=1.0, cap=60.0)
                await ledger.settle(claimed, [Retry(self._time_in(wait), message)])
            case Failed():
                text = f"{apology(end, record.notices.scope)} Your message is kept."
                edit_id = live.message_id if live else None
                await ledger.settle(claimed, done, say=text, edit_id=edit_id, notice=notice)
                self.hear(batch.keys, end)
            case Stopped():
                await ledger.settle(claimed, done, say=None if accepted else UNSAID, notice=notice)
                self.hear(batch.keys, end)
            case Replied() if batch.first.chat.chat_type != "api":
                ledger.wake_delivery.set()

    def _time_in(self, seconds: float) -> float:
        return self.ledger.store.clock.now() + seconds


def _show(live: LiveReply | None, event: TurnEvent) -> None:
    if live is None:
        return
    if isinstance(event, TextDelta):
        live.add(event.text)
    elif isinstance(event, ToolStarted):
        live.restart()


MAX_MESSAGES_PER_TURN = 50
"""Maximum number of waiting messages of a chat that one turn answers."""


@dataclass(slots=True)
class Lanes(Work):
    """Handles the inbox: runs a turn for messages, and executes commands."""

    store: Store
    inbox: Inbox
    agents: AgentCache
    ledger: Ledger
    turns: InboxTurns
    agent_replies: int
    """Maximum number of replies to other agents in a row while no person speaks."""
    stops: dict[str, asyncio.Event] = field(default_factory=dict)

    def stop_turn(self, session_id: str) -> bool:
        """End the running turn or command of a session; return False if none runs."""
        running = self.stops.get(session_id)
        if running is not None:
            running.set()
        return running is not None

    async def handle(self, claimed: Claim) -> Sequence[ItemOutcome] | None:
        """Handle one batch of a lane. It is settled with its reply."""
        batch = next_batch(claimed.items)
        if is_stop(batch.first.typed):  # it took effect on receipt; after a crash it only leaves the inbox
            return [done_with(Replied(batch.items[0].session_id or "", 0, NOT_RUNNING))]
        await self._answer(claimed, batch)
        return None

    def settling(self, tx: Tx, claimed: Claim, recorded: Sequence[ItemOutcome]) -> None:
        """Report dead messages to the chat and store the report in the session, unless it would follow a later message
        that waits for its own reply."""
        for item, failed in _dead_items(claimed, recorded):
            text = apology(failed, self.inbox.chats.reach_of(tx, Inbound.from_json(item.payload)))
            self.ledger.enqueue(tx, Chat(*item.payload["chat"]), claimed.lane, text, f"note:{item.key}")
            said = said_already(tx, [item.id]).get(item.id)
            if said is None or is_followed(tx, failed.session_id, said):
                continue
            if self.store.sessions.exists(tx, failed.session_id):
                reply = Draft("assistant", text)
                self.store.messages.append(tx, failed.session_id, [reply], now=self.store.clock.now())

    def settled(self, claimed: Claim, recorded: Sequence[ItemOutcome]) -> None:
        for item, failed in _dead_items(claimed, recorded):
            self.ledger.wake_delivery.set()
            self.turns.hear([item.key], failed)

    async def _answer(self, claimed: Claim, batch: Batch) -> None:
        opened = await self.inbox.open_batch(batch)
        session = opened.session
        key = session.session_key or ""
        token = SESSION.set(session.id)
        stop = self.stops[session.id] = asyncio.Event()
        try:
            person = Person(batch.first.author_id, batch.first.author_alt)
            async with self.agents.use(session, key, opened.scope, person) as agent:
                if batch.first.author_is_agent and await self._ends_chain(claimed, batch, opened):
                    return
                to_say = await self._batch_for_turn(claimed, batch, opened, key, agent, stop)
                if to_say is not None:
                    await self.turns.run(claimed, to_say, opened, agent, stop)
        finally:
            if self.stops.get(session.id) is stop:
                del self.stops[session.id]
            SESSION.reset(token)

    async def _ends_chain(self, claimed: Claim, batch: Batch, opened: OpenedSession) -> bool:
        """Store messages of another agent without a reply if there were as many replies as allowed since a person
        spoke. The chat gets one explanation."""
        session_id, store, now = opened.session.id, self.store, self.store.clock.now()

        def keep(tx: Tx) -> bool:
            person, replies = store.messages.replies_since_person(tx, session_id)
            if replies < self.agent_replies or opened.known:
                return False
            drafts = [draft_of(message, is_owner=False) for message in batch.messages]
            stored = store.messages.append(tx, session_id, drafts, now=now)
            record_messages(tx, session_id, [(item.id, one.id) for item, one in zip(batch.items, stored, strict=True)])
            done = [done_with(Replied(session_id, 0, ""))] * len(batch.items)
            queue.settle(tx, claimed, done, now=now)
            text = CHAIN_ENDED.format(replies=self.agent_replies)
            self.ledger.enqueue(tx, batch.first.chat, claimed.lane, text, f"chain:{session_id}:{person}")
            return True

        ended = await store.write(keep)
        if ended:
            self.ledger.wake_delivery.set()
        return ended

    async def _batch_for_turn(
        self, claimed: Claim, batch: Batch, opened: OpenedSession, key: str, agent: Agent, stop: asyncio.Event
    ) -> Batch | None:
        """Return the batch to answer in a turn; None for a command without a turn. A command whose turn began before a
        crash is not run again."""
        if batch.command is None or batch.items[0].id in opened.known:
            return batch
        here = InChat(self.store, self.inbox, agent, key, batch.first, stop, batch.keys[0], opened.owners[0])
        answer = await _run_command(batch.command, here)
        if isinstance(answer, Say):
            return replace(batch, messages=(replace(batch.first, text=answer.text),), command=None)
        if isinstance(answer, Again):
            return replace(batch, command=None, again=answer)
        await self._settle_command(claimed, batch, key, agent, answer)
        return None

    async def _settle_command(self, claimed: Claim, batch: Batch, key: str, agent: Agent, text: str) -> None:
        ending = Replied(agent.session_id, 0, text)
        await self.ledger.settle(claimed, [done_with(ending)], say=text)
        self.turns.hear(batch.keys, ending)
        bound = await self.store.read(lambda tx: self.store.routes.lookup(tx, key))
        if bound != agent.session_id:
            self.agents.retire(agent.session_id)


async def _run_command(typed: TypedCommand, here: InChat) -> Answer:
    try:
        return await typed.run(here)
    except (UsageError, NoteError, SessionBusyError) as error:  # the person can act on it
        return error.line()
    except (ProviderError, HomeError) as error:  # only the owner may read the error, as for a failed turn
        log.warning("/%s could not be done: %s", typed.command.name, error.line())
        return error.line() if here.agent.scope == OWNER else NOT_NOW


def _dead_items(claimed: Claim, recorded: Sequence[ItemOutcome]) -> Iterator[tuple[Item, Failed]]:
    for item, outcome in zip(claimed.items, recorded, strict=False):
        if isinstance(outcome, Dead):
            yield item, Failed(item.session_id or "", "host", f"this message could not be handled: {outcome.reason}")
