"""The record of a turn that answers inbox items: they are settled in the transaction of the reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.queue import Claim, Item
from hermes.events import Replied
from hermes.gateway.ledger import Ledger
from hermes.gateway.live_reply import LiveReply
from hermes.gateway.outcome import done_with
from hermes.gateway.part import Part
from hermes.store.inbox import record_messages
from hermes.types import Message


class AnsweredError(Exception):
    """The first `count` items of a part were said before a crash, and someone has answered them since."""

    def __init__(self, reply: Message, count: int) -> None:
        super().__init__(f"message {reply.id} is the reply")
        self.reply = reply
        self.count = count


@dataclass(slots=True)
class InboxRecord:
    """Settles the inbox with the reply. Nothing is said when the first item has its reply already: AnsweredError."""

    ledger: Ledger
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
            reply = self.ledger.store.messages.reply_after(tx, self.session_id, said) if said is not None else None
            if reply is None or (replies and reply.id != replies[0].id):
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
