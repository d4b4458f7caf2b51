"""Records of the inbox: the outcome of each item and its reply to the chat are stored in one transaction.

The outcome is kept as a note with the item, so that a client that repeats its request gets the same response.

Batches: the waiting items of a lane that one turn answers together.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.db import queue, queue_items
from hermes.db.engine import Tx
from hermes.db.queue import Claim, Done, Item, ItemOutcome
from hermes.events import GONE, Failed, Replied, Stopped
from hermes.gateway.notices import TurnNotices
from hermes.gateway.outbound import LiveReply, enqueue_text
from hermes.gateway.platform import Chat, Inbound, Platform
from hermes.llm.assemble import FINISHED_BY_LENGTH
from hermes.slash.context import Again
from hermes.slash.table import TypedCommand, find_command
from hermes.store.inbox import record_messages
from hermes.store.store import Store
from hermes.types import Draft, Message


class Batch(Struct, frozen=True):
    """Inbox items that are handled together: the messages of one turn, or one command."""

    items: tuple[Item, ...]
    messages: tuple[Inbound, ...]
    command: TypedCommand | None = None
    again: Again | None = None
    """Set when the command asks for the last turn to be answered again."""

    @property
    def first(self) -> Inbound:
        return self.messages[0]

    @property
    def keys(self) -> list[str]:
        return [item.key for item in self.items]


def next_batch(items: Sequence[Item]) -> Batch:
    """Return the next batch of a lane: all messages up to a command on chat platforms, one request over the API."""
    messages = [Inbound.from_json(item.payload) for item in items]
    first = messages[0]
    if (command := find_command("chat", first.typed)) is not None:
        return Batch((items[0],), (first,), command)
    count = 1
    if first.chat.chat_type != "api" and _is_for_model(first):
        while count < len(items) and _joins(first, messages[count]):
            count += 1
    return Batch(tuple(items[:count]), tuple(messages[:count]))


def _joins(first: Inbound, other: Inbound) -> bool:
    """Return True if a message joins the turn of an earlier one. People and agents never share a turn."""
    same_kind = (first.author_is_agent, first.author_id if first.author_is_agent else None) == (
        other.author_is_agent,
        other.author_id if other.author_is_agent else None,
    )
    return other.chat == first.chat and same_kind and _is_for_model(other)


def is_stop(text: str) -> bool:
    """Return True for `/stop`, which acts before the messages that wait. Leading blanks are ignored."""
    typed = find_command("chat", text.lstrip())
    return typed is not None and typed.command.overtakes


def _is_for_model(message: Inbound) -> bool:
    """Return True if a message is for the model. Commands are not, and neither is `/stop` after blanks."""
    typed = find_command("chat", message.typed.lstrip())
    return typed is None or (message.text[:1].isspace() and not typed.command.overtakes)


def draft_of(message: Inbound, *, is_owner: bool) -> Draft:
    """Return a message as it is stored, with its author; in groups with the author's name, which the model reads."""
    named = message.author_name if message.chat.chat_type in ("group", "channel") else None
    return Draft(
        "user",
        message.text,
        platform_message_id=message.message_id,
        author_id=message.author_id,
        author_name=named,
        author_alt=message.author_alt,
        author_is_owner=is_owner,
        author_is_agent=message.author_is_agent or None,
    )


TurnEnding = Replied | Stopped | Failed
REPLY_GONE = "the message was answered, but the reply was deleted"


def done_with(ending: TurnEnding) -> Done:
    """Return the outcome of an item whose turn ended so. A stored reply is referenced, never copied."""
    match ending:
        case Replied(message_id=message_id) if message_id:
            return Done(json.dumps({"reply": message_id}))
        case Replied(text=text):
            return Done(json.dumps({"said": text}, ensure_ascii=False))
        case Stopped(text=text):
            return Done(json.dumps({"stopped": text}, ensure_ascii=False))
        case Failed(kind=kind, message=message):
            return Done(json.dumps({"failed": kind, "message": message}, ensure_ascii=False))


def recall_ending(tx: Tx, store: Store, item: Item) -> TurnEnding | None:
    """Return how the turn of an item ended, or None while it is waiting."""
    session_id = item.session_id or ""
    if item.state == "waiting":
        return None
    if item.state == "dead":
        return Failed(session_id, "host", item.reason or "the message was given up")
    if item.session_id is None:
        return Failed("", "gone", GONE)
    note = json.loads(item.reason or "{}")
    if "reply" in note:
        message = store.messages.get(tx, note["reply"])
        if message is not None:
            cut = message.finish_reason == FINISHED_BY_LENGTH
            return Replied(message.session_id, message.id, message.content or "", None, message.token_count, cut)
    if "said" in note:
        return Replied(session_id, 0, note["said"])
    if "stopped" in note:
        return Stopped(session_id, note["stopped"])
    return Failed(session_id, note.get("failed", "host"), note.get("message", REPLY_GONE))


class Ledger(Struct, frozen=True):
    """Settles claims of the inbox. Sets `wake_delivery` when the outbound queue has something to send."""

    store: Store
    platforms: Mapping[str, Platform]
    wake_delivery: asyncio.Event

    async def settle(
        self,
        claimed: Claim,
        outcomes: Sequence[ItemOutcome],
        *,
        say: str | None = None,
        edit_id: str | None = None,
        notice: str = "",
    ) -> None:
        """Record the outcomes and, in the same commit, enqueue `say` and then `notice` for the chat of the first item.
        Raises StaleError if the claim was lost."""
        first = claimed.items[0]

        def settle(tx: Tx) -> None:
            queue.settle(tx, claimed, outcomes, now=self.store.clock.now())
            chat = Chat(*first.payload["chat"])
            if say is not None:
                self.enqueue(tx, chat, claimed.lane, say, f"note:{first.key}", edit_id=edit_id)
            if notice:
                self.enqueue(tx, chat, claimed.lane, notice, f"remark:{first.key}")

        await self.store.write(settle)
        if say is not None or notice:
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
        """Enqueue a text for a chat. Does nothing for the HTTP API, where the open request returns the answer."""
        platform = self.platforms.get(chat.platform)
        if chat.chat_type == "api" or platform is None:
            return
        now, longest = self.store.clock.now(), platform.longest_message
        enqueue_text(tx, chat, lane, key, text, now=now, longest=longest, edit_id=edit_id, session_id=session_id)


MAX_REMINDER_QUOTE_CHARS = 300
"""Longest quotation in the reminder of an unanswered message."""


class AnsweredError(Exception):
    """Raised when the first `count` items of a batch were stored before a crash and have been answered since."""

    def __init__(self, reply: Message, count: int) -> None:
        super().__init__(f"message {reply.id} is the reply")
        self.reply = reply
        self.count = count


class DroppedError(Exception):
    """Raised when items of a batch were deleted together with their session."""


class InboxRecord(Struct):
    """Settles the items of a batch in the commit of their reply.

    `accepted` refuses a turn that must not run: with AnsweredError if the first item got its reply before a crash, and
    with DroppedError if the items were deleted with their session.

    A stored reply belongs to an item only if nobody else spoke in between. Otherwise it answered somebody in another
    chat: the item then gets its own reply, and the model is reminded of the message to answer.
    """

    ledger: Ledger
    claimed: Claim
    batch: Batch
    session_id: str
    live: LiveReply | None
    fresh: Sequence[Item]
    known: Mapping[int, int]
    """Item id -> message id, for items that a turn stored before it crashed."""
    notices: TurnNotices
    """Notices that follow the reply, recorded with it."""
    reminder: str = ""

    @property
    def earlier(self) -> Sequence[tuple[str, str]]:
        return self.batch.first.earlier

    def accepted(self, tx: Tx, messages: Sequence[Message]) -> Sequence[Message]:
        if not queue_items.all_waiting(tx, self.batch.items):
            raise DroppedError
        others = self._messages_by_others(tx, messages)
        self._check_for_reply(tx, others)
        new = dict(zip([item.id for item in self.fresh], messages, strict=True))
        record_messages(tx, self.session_id, [(item, message.id) for item, message in new.items()])
        stored = self.ledger.store.messages
        said = [new.get(item.id) or stored.get(tx, self.known[item.id]) for item in self.batch.items]
        answered = [message for message in said if message is not None]
        self.reminder = remind([message for message in answered if others and message.id < others[-1]])
        return answered

    def _messages_by_others(self, tx: Tx, messages: Sequence[Message]) -> list[int]:
        """Return the ids, in order, of messages by others after the first known item of this batch."""
        if not self.known:
            return []
        ours = {*self.known.values(), *(message.id for message in messages)}
        said = self.ledger.store.messages.said_after(tx, self.session_id, min(self.known.values()))
        return [message_id for message_id in said if message_id not in ours]

    def _check_for_reply(self, tx: Tx, others: Sequence[int]) -> None:
        replies: list[Message] = []
        for item in self.batch.items:
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
        queue.settle(tx, self.claimed, [done] * len(self.batch.items), now=message.timestamp)
        if self.earlier:
            queue_items.drop_field(tx, self.batch.items, "earlier")
        self.ledger.enqueue(
            tx,
            self.batch.first.chat,
            self.claimed.lane,
            message.content or "",
            f"reply:{message.id}",
            edit_id=self.live.message_id if self.live is not None else None,
            session_id=self.session_id,
        )
        if notice := self.notices.line_of_reply(tx):
            key = f"remark:{message.id}"
            self.ledger.enqueue(tx, self.batch.first.chat, self.claimed.lane, notice, key, session_id=self.session_id)


def remind(overtaken: Sequence[Message]) -> str:
    """Return the reminder of messages that others have spoken after; "" for no messages."""
    if not overtaken:
        return ""
    quoted = ", ".join(f"“{_short(message.content or '')}”" for message in overtaken)
    return (
        f"[Not answered in this chat yet: {quoted}. What was said after it came from another place and was answered "
        "there. Answer this chat now; do not answer the other place again.]"
    )


def _short(text: str) -> str:
    return text if len(text) <= MAX_REMINDER_QUOTE_CHARS else f"{text[:MAX_REMINDER_QUOTE_CHARS].rstrip()} …"
