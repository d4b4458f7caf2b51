"""A turn that answers inbox items: shown as it goes on, heard by whoever asked, settled at its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.agent import Agent
from hermes.agent.lane import UNSAID, WAITING
from hermes.agent.turn import answer
from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.outcomes import Retry
from hermes.db.queue import Claim, backoff
from hermes.events import GONE, Accepted, Failed, Replied, Stopped, TextDelta, ToolStarted, TurnEvent, Waiting
from hermes.gateway.inbox_record import AnsweredError, DroppedError, InboxRecord
from hermes.gateway.ledger import Ledger
from hermes.gateway.live_reply import LiveReply
from hermes.gateway.outcome import Ending, done_with
from hermes.gateway.part import Part, draft_of
from hermes.gateway.platform import Chat, Platform
from hermes.gateway.remarks import Remarks, RemarkTerms, apology, may_hear
from hermes.scope import Scope
from hermes.types import Session

BUSY_PAUSE = 1.0
KEPT = "The message is kept and will be answered; ask again with its Idempotency-Key"

Hear: TypeAlias = Callable[[Sequence[str], TurnEvent], None]
"""Told every event of a turn, with the keys of the items it answers."""


class Opened(Struct, frozen=True):
    """The session that a part is said in."""

    session: Session
    scope: Scope
    owners: tuple[bool, ...]
    """Of each message, whether the owner says it."""
    known: Mapping[int, int]
    """The items that were said before a crash, with their messages."""


class InboxTurns(Struct, frozen=True):
    """Runs them. How a turn ended is heard only once that is on the disk."""

    ledger: Ledger
    platforms: Mapping[str, Platform]
    locks: Callable[[Chat], asyncio.Lock]
    hear: Hear
    remarks: RemarkTerms

    async def run(self, claimed: Claim, part: Part, opened: Opened, agent: Agent, stop: asyncio.Event) -> None:
        """Answer a part of a lane, and settle it."""
        known, said = opened.known, zip(part.items, part.messages, opened.owners, strict=True)
        new = [(item, draft_of(one, is_owner=is_owner)) for item, one, is_owner in said if item.id not in known]
        live = self._show_live(part.first.chat)
        remarks, items = Remarks(self.remarks, part.first.chat, opened.scope), [item for item, _ in new]
        record = InboxRecord(self.ledger, claimed, part, agent.session_id, live, items, known, remarks)
        accepted = not new
        end: Ending | None = None
        try:
            async with aclosing(answer(agent, [draft for _, draft in new], stop, record)) as events:
                async for event in events:
                    accepted = accepted or isinstance(event, Accepted)
                    _show(live, event)
                    remarks.hear(event)
                    if isinstance(event, Waiting):
                        await self._tell_waiting(claimed, part)
                    if isinstance(event, Replied | Stopped | Failed):
                        end = end or event  # what fails after a reply does not undo it
                    if not isinstance(event, Stopped | Failed) and may_hear(event, opened.scope):
                        self.hear(part.keys, event)
        except AnsweredError as answered:
            await self._settle_answered(claimed, part, answered)
            return
        except DroppedError:
            await self.ledger.settle(claimed, [])
            self.hear(part.keys, Failed(agent.session_id, "gone", GONE))
            return
        finally:
            if live is not None:
                await live.end()
        assert end is not None, "a turn has an end"
        await self._end_turn(claimed, part, end, record, accepted=accepted)

    async def _settle_answered(self, claimed: Claim, part: Part, answered: AnsweredError) -> None:
        """What was answered while we were away has its reply; what follows it in the lane is next."""
        reply, store = answered.reply, self.ledger.store
        ending = Replied(reply.session_id, reply.id, reply.content or "", None, reply.token_count)

        def settle(tx: Tx) -> None:
            queue.settle(tx, claimed, [done_with(ending)] * answered.count, now=store.clock.now())
            text, chat = ending.text, part.first.chat
            self.ledger.enqueue(tx, chat, claimed.lane, text, f"reply:{reply.id}", session_id=reply.session_id)

        await store.write(settle)
        self.hear(part.keys[: answered.count], ending)
        self.ledger.wake_delivery.set()

    async def _tell_waiting(self, claimed: Claim, part: Part) -> None:
        """Tell a chat why it waits, once however often we try."""
        text, key = f"{WAITING} /stop ends the wait.", f"waiting:{part.keys[0]}"
        await self.ledger.store.write(lambda tx: self.ledger.enqueue(tx, part.first.chat, claimed.lane, text, key))
        self.ledger.wake_delivery.set()

    def _show_live(self, chat: Chat) -> LiveReply | None:
        platform = self.platforms.get(chat.platform)
        if platform is None or chat.chat_type == "api":
            return None
        return LiveReply(platform, chat, self.locks(chat))

    async def _end_turn(self, claimed: Claim, part: Part, end: Ending, record: InboxRecord, *, accepted: bool) -> None:
        """A reply was settled with its own transaction; anything else is settled here."""
        ledger, now, live = self.ledger, self.ledger.store.clock.now(), record.live
        remark = record.remarks.line if accepted else ""
        match end:
            case Failed(kind="busy", message=message):
                await ledger.settle(claimed, [Retry(now + BUSY_PAUSE, message)])
                if not accepted:  # whoever waits over HTTP has waited long enough
                    self.hear(part.keys, replace(end, message=f"{message}. {KEPT}"))
            case Failed(kind="gone"):
                await ledger.settle(claimed, [done_with(end)] * len(part.items), say=apology(end, record.remarks.scope))
                self.hear(part.keys, end)
            case Failed(message=message) if not accepted:  # it is in the inbox alone, so there it stays
                wait = backoff(claimed.items[0].attempts, random.random, base=1.0, cap=60.0)
                await ledger.settle(claimed, [Retry(now + wait, message)])
            case Failed():
                text = f"{apology(end, record.remarks.scope)} Your message is kept."
                done = [done_with(end)] * len(part.items)
                edit_id = live.message_id if live else None
                await ledger.settle(claimed, done, say=text, edit_id=edit_id, remark=remark)
                self.hear(part.keys, end)
            case Stopped():
                done = [done_with(end)] * len(part.items)
                await ledger.settle(claimed, done, say=None if accepted else UNSAID, remark=remark)
                self.hear(part.keys, end)
            case Replied() if part.first.chat.chat_type != "api":
                ledger.wake_delivery.set()


def _show(live: LiveReply | None, event: TurnEvent) -> None:
    if live is None:
        return
    if isinstance(event, TextDelta):
        live.add(event.text)
    elif isinstance(event, ToolStarted):
        live.restart()
