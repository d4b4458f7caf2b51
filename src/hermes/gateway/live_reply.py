"""A reply that grows before the person's eyes, where the platform can edit, and the sign that one is coming."""

from __future__ import annotations

import asyncio
import logging

from hermes.gateway.outbound import cut_text
from hermes.gateway.platform import Chat, Platform, SendLater, SendNever

log = logging.getLogger("hermes.gateway")

TYPING_EVERY = 4.0
EDIT_EVERY = {"dm": 1.0}
IN_GROUPS = 3.0
"""Seconds between edits: platforms take about one a second in a direct chat, and twenty a minute in a group."""
FIRST_AFTER = 40
"""Characters until a first draft is shown."""
PATIENCE = 10.0
"""Seconds that the reply waits for a preview that is being sent, so as to replace it."""


class LiveReply:
    """Shows what is said so far. It is only a preview: the reply itself goes through the outbound queue."""

    def __init__(self, platform: Platform, chat: Chat, lock: asyncio.Lock) -> None:
        self._platform = platform
        self._chat = chat
        self._lock = lock
        self._text = ""
        self._shown = ""
        self._ended = False
        self._sending: asyncio.Task[None] | None = None
        self.message_id: str | None = None
        """The message that shows a preview: the reply shall replace it."""
        self._task = asyncio.create_task(self._run())

    def add(self, text: str) -> None:
        self._text += text

    def restart(self) -> None:
        """What was said so far was not the reply: tools run, and it begins anew."""
        self._text = ""

    async def end(self) -> None:
        """No more previews. One that is being sent is waited for, so that `message_id` is known."""
        self._ended = True
        self._task.cancel()
        await asyncio.wait({self._task})
        if self._sending is not None:
            await asyncio.wait({self._sending}, timeout=PATIENCE)

    async def _run(self) -> None:
        """Must not raise: a preview that fails is no failure of the turn."""
        typed = 0.0
        while True:
            pause = EDIT_EVERY.get(self._chat.chat_type, IN_GROUPS)
            try:
                if typed <= 0:
                    await self._platform.show_typing(self._chat)
                    typed = TYPING_EVERY
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
        if not self._platform.can_edit or len(text) < FIRST_AFTER or text == self._shown:
            return
        self._shown = text
        self._sending = asyncio.create_task(self._put(text))
        self._sending.add_done_callback(lambda task: task.cancelled() or task.exception())  # heard below, or by nobody
        await asyncio.shield(self._sending)

    async def _put(self, text: str) -> None:
        async with self._lock:
            if self._ended:  # the reply itself may be on its way: nothing older shall come after it
                return
            if self.message_id is None:
                self.message_id = await self._platform.send(self._chat, text)
            else:
                await self._platform.edit(self._chat, self.message_id, text)
