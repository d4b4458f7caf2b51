"""The outbound queue: each reply is recorded before it is sent, and each chat gets its messages in order, once where
the platform can tell. Long replies are split where a paragraph, line or word ends.

Live replies: a typing sign, and a preview that is edited while the model writes, where the platform can edit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import astuple

from hermes.clock import Clock
from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.queue import Claim, Dead, Done, Item, ItemOutcome, Retry, backoff
from hermes.db.worker import Work, WorkerOptions
from hermes.gateway.platform import Chat, MessageGone, Platform, SendLater, SendNever

log = logging.getLogger("hermes.gateway")

OUTBOUND = "outbound"
OPTIONS = WorkerOptions(ttl=60.0, batch=1, at_once=1000)
"""One item per claim: each message is recorded as sent before the next one, so a crash repeats at most one."""


def enqueue_text(
    tx: Tx,
    chat: Chat,
    lane: str,
    key: str,
    text: str,
    *,
    now: float,
    longest: int = 4000,
    edit_id: str | None = None,
    session_id: str | None = None,
) -> None:
    """Enqueue a text for a chat, split into pieces; the first piece replaces the message `edit_id`, if given."""
    for number, piece in enumerate(split_text(text, longest)):
        payload = {
            "chat": astuple(chat),
            "text": piece,
            "edit_id": edit_id if number == 0 else None,
        }
        queue.enqueue(tx, OUTBOUND, lane, f"{key}:{number}", payload, now=now, session_id=session_id)


@dataclass(slots=True)
class OutboundWork(Work):
    """Sends queued messages. A slow chat delays no other chat."""

    clock: Clock
    platforms: Mapping[str, Platform]
    locks: Callable[[Chat], asyncio.Lock]
    chance: Callable[[], float]

    async def handle(self, claimed: Claim) -> Sequence[ItemOutcome]:
        return [await self._send(claimed.items[0])]

    async def _send(self, item: Item) -> ItemOutcome:
        chat = Chat(*item.payload["chat"])
        platform = self.platforms.get(chat.platform)
        if platform is None:
            return Retry(self.clock.now() + 60.0, f"platform {chat.platform} is not running")
        try:
            async with self.locks(chat):
                await _put(platform, chat, item)
            return Done()
        except SendLater as error:
            wait = error.wait if error.wait is not None else backoff(item.attempts, self.chance, base=1.0, cap=60.0)
            return Retry(self.clock.now() + wait, str(error))
        except SendNever as error:
            log.warning("gave up a message to %s: %s", item.lane, error)
            return Dead(str(error))


async def _put(platform: Platform, chat: Chat, item: Item) -> None:
    """Replace the preview if it still exists; otherwise send a message."""
    try:
        if item.payload["edit_id"]:
            await platform.edit(chat, item.payload["edit_id"], item.payload["text"])
            return
    except MessageGone:
        log.info("the preview in %s is gone; sending the reply as a new message", item.lane)
    key = f"{item.key} {item.created_at}"  # a home that is made anew counts from one again
    if item.attempts > 1 and await platform.was_sent(chat, key, item.created_at):
        log.info("a message to %s was already sent before a restart", item.lane)
        return
    await platform.send(chat, item.payload["text"], key)


def split_text(text: str, longest: int) -> list[str]:
    """Split `text` into pieces of at most `longest` UTF-16 units, in order; blank text gives no pieces. Telegram and
    Discord count UTF-16 units, of which a text has at least as many as characters."""
    pieces: list[str] = []
    rest = text.strip()
    while len(window := cut_text(rest, longest)) < len(rest):
        cut = _cut_position(rest, max(1, len(window)))
        head, rest = rest[:cut], rest[cut:]
        pieces.append(head.rstrip())
        rest = rest.lstrip("\n") if head.endswith("\n") else rest.lstrip(" ")  # an indented line stays indented
    return [piece for piece in [*pieces, rest] if piece.strip()]


def cut_text(text: str, longest: int) -> str:
    """Return the longest prefix of `text` with at most `longest` UTF-16 units."""
    window = text[:longest]
    while (over := count_units(window) - longest) > 0:
        window = window[: -((over + 1) // 2)]
    return window


def count_units(text: str) -> int:
    """Return the number of UTF-16 units: characters beyond the basic plane, such as most emoji, count twice."""
    return len(text) + sum(character > "\uffff" for character in text)


def _cut_position(text: str, longest: int) -> int:
    """Return the last good place for a cut, in the second half of the window if there is one."""
    for mark in ("\n\n", "\n", ". ", " "):
        place = text.rfind(mark, longest // 2, longest)
        if place > 0:
            return place + len(mark.rstrip(" "))
    return longest


TYPING_SECONDS = 4.0
EDIT_SECONDS = {"dm": 1.0}
GROUP_EDIT_SECONDS = 3.0
"""Seconds between edits outside direct chats. Platforms take about one edit a second in a direct chat, and twenty a
minute in a group."""
MIN_PREVIEW_CHARS = 40
"""A shorter reply gets no preview."""
PREVIEW_TIMEOUT_SECONDS = 10.0
"""Time that the final reply waits for a preview in flight, so that it can replace it."""


class LiveReply:
    """A preview of one reply. The reply itself is delivered by the outbound queue."""

    def __init__(self, platform: Platform, chat: Chat, lock: asyncio.Lock) -> None:
        self._platform = platform
        self._chat = chat
        self._lock = lock
        self._text = ""
        self._shown = ""
        self._ended = False
        self._sending: asyncio.Task[None] | None = None
        self.message_id: str | None = None
        """Id of the message with the preview, which the reply replaces; None while none was sent."""
        self._task = asyncio.create_task(self._run())

    def add(self, text: str) -> None:
        self._text += text

    def restart(self) -> None:
        """Discard the text so far: it preceded a tool call and is not the reply."""
        self._text = ""

    async def end(self) -> None:
        """Stop previews, and wait for one in flight, so that `message_id` is known."""
        self._ended = True
        self._task.cancel()
        await asyncio.wait({self._task})
        if self._sending is not None:
            await asyncio.wait({self._sending}, timeout=PREVIEW_TIMEOUT_SECONDS)

    async def _run(self) -> None:
        """Update the typing sign and the preview until cancelled. Must not raise: a failed preview fails no turn."""
        typed = 0.0
        while True:
            pause = EDIT_SECONDS.get(self._chat.chat_type, GROUP_EDIT_SECONDS)
            try:
                if typed <= 0:
                    await self._platform.show_typing(self._chat)
                    typed = TYPING_SECONDS
                await self._show()
            except SendLater as error:
                log.debug("no preview in %s: %s", self._chat.chat_id, error)
                pause = max(pause, error.wait or 0.0)
            except SendNever as error:
                log.debug("no previews in %s: %s", self._chat.chat_id, error)
                return
            except Exception:  # a platform's defect; the reply itself is delivered and reported on its own way
                log.exception("a preview in %s failed", self._chat.chat_id)
                return
            await asyncio.sleep(pause)
            typed -= pause

    async def _show(self) -> None:
        text = cut_text(self._text.strip(), self._platform.longest_message)
        if not self._platform.can_edit or len(text) < MIN_PREVIEW_CHARS or text == self._shown:
            return
        self._shown = text
        self._sending = asyncio.create_task(self._put(text))
        self._sending.add_done_callback(
            lambda task: task.cancelled() or task.exception()
        )  # read, so that asyncio logs nothing
        await asyncio.shield(self._sending)

    async def _put(self, text: str) -> None:
        async with self._lock:
            if self._ended:  # the reply may be in flight: no older text may follow it
                return
            if self.message_id is None:
                self.message_id = await self._platform.send(self._chat, text)
            else:
                await self._platform.edit(self._chat, self.message_id, text)
