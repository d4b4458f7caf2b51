"""Live replies: a typing sign, and a preview that is edited while the model writes, where the platform can edit."""

from __future__ import annotations

import asyncio
import logging

from hermes.gateway.outbound import cut_text
from hermes.gateway.platform import Chat, Platform, SendLater, SendNever

log = logging.getLogger("hermes.gateway")

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
