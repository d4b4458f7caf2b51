"""The record of a turn that answers inbox items: they are settled in the transaction of the reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.db import queue, queue_items
from hermes.db.engine import Tx
from hermes.db.queue import Claim, Item
from hermes.events import Replied
from hermes.gateway.ledger import Ledger
from hermes.gateway.live_reply import LiveReply
from hermes.gateway.outcome import done_with
from hermes.gateway.part import Part
from hermes.gateway.remarks import Remarks
from hermes.store.inbox import record_messages
from hermes.types import Message

QUOTED = 300
"""Characters of a message that the model is reminded of."""


class AnsweredError(Exception):
    """The first `count` items of a part were said before a crash, and someone has answered them since."""

    def __init__(self, reply: Message, count: int) -> None:
        super().__init__(f"message {reply.id} is the reply")
        self.reply = reply
        self.count = count


class DroppedError(Exception):
    """Items of a part went with their session while it waited for its turn."""


class InboxRecord(Struct):
    """Settles the inbox with the reply. Nothing is said when the first item has its reply already: AnsweredError; nor
    what went with a session that was deleted, should there be one of the same id again: DroppedError.

    A reply is an item's own when nobody else has spoken in between. Otherwise it was given to them, in another place:
    the item gets one of its own, and the model is reminded of what it is to answer.
    """

    ledger: Ledger
    claimed: Claim
    part: Part
    session_id: str
    live: LiveReply | None
    fresh: Sequence[Item]
    known: Mapping[int, int]
    """The items that were said before, with their messages."""
    remarks: Remarks
    """What is said after the reply, recorded with it."""
    reminder: str = ""

    def accepted(self, tx: Tx, messages: Sequence[Message]) -> Sequence[Message]:
        if not queue_items.all_waiting(tx, self.part.items):
            raise DroppedError
        others = self._said_by_others(tx, messages)
        self._look_for_reply(tx, others)
        new = dict(zip([item.id for item in self.fresh], messages, strict=True))
        record_messages(tx, self.session_id, [(item, message.id) for item, message in new.items()])
        stored = self.ledger.store.messages
        said = [new.get(item.id) or stored.get(tx, self.known[item.id]) for item in self.part.items]
        answered = [message for message in said if message is not None]
        self.reminder = remind([message for message in answered if others and message.id < others[-1]])
        return answered

    def _said_by_others(self, tx: Tx, messages: Sequence[Message]) -> list[int]:
        """What was said by nobody of ours since the first item was, by its ids, in order."""
        if not self.known:
            return []
        ours = {*self.known.values(), *(message.id for message in messages)}
        said = self.ledger.store.messages.said_after(tx, self.session_id, min(self.known.values()))
        return [message_id for message_id in said if message_id not in ours]

    def _look_for_reply(self, tx: Tx, others: Sequence[int]) -> None:
        replies: list[Message] = []
        for item in self.part.items:
            said = self.known.get(item.id)
            reply = self.ledger.store.messages.reply_after(tx, self.session_id, said) if said is not None else None
            if said is None or reply is None or any(said < other < reply.id for other in others):
                break
            if replies and reply.id != replies[0].id:
                break
            replies.append(reply)
        if replies:
            raise AnsweredError(replies[0], len(replies))

    async def concluding(self) -> None:
        if self.live is not None:
            await self.live.end()

    def replied(self, tx: Tx, message: Message) -> None:
        done = done_with(Replied(self.session_id, message.id, ""))
        queue.settle(tx, self.claimed, [done] * len(self.part.items), now=self.ledger.store.clock.now())
        self.ledger.enqueue(
            tx,
            self.part.first.chat,
            self.claimed.lane,
            message.content or "",
            f"reply:{message.id}",
            edit_id=self.live.message_id if self.live is not None else None,
            session_id=self.session_id,
        )
        if remark := self.remarks.line_of_reply(tx):
            key = f"remark:{message.id}"
            self.ledger.enqueue(tx, self.part.first.chat, self.claimed.lane, remark, key, session_id=self.session_id)


def remind(overtaken: Sequence[Message]) -> str:
    """What the model is told of messages that others have spoken after; nothing for none."""
    if not overtaken:
        return ""
    quoted = ", ".join(f"“{_short(message.content or '')}”" for message in overtaken)
    return (
        f"[Not answered in this chat yet: {quoted}. What was said after it came from another place and was answered "
        "there. Answer this chat now; do not answer the other place again.]"
    )


def _short(text: str) -> str:
    return text if len(text) <= QUOTED else f"{text[:QUOTED].rstrip()} …"
