"""A reply that grows before the person's eyes, where the platform can edit, and the sign that one is coming."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from hermes.gateway.platform import Chat, Platform, SendLater, SendNever

log = logging.getLogger("hermes.gateway")

TYPING_EVERY = 4.0
EDIT_EVERY = 1.0
FIRST_AFTER = 40
"""Characters until a first draft is shown."""


class LiveReply:
    """Shows what is said so far. It is only a preview: the reply itself goes through the outbound queue."""

    def __init__(self, platform: Platform, chat: Chat, lock: asyncio.Lock) -> None:
        self._platform = platform
        self._chat = chat
        self._lock = lock
        self._text = ""
        self._shown = ""
        self._closed = False
        self.message_id: str | None = None
        self._task = asyncio.create_task(self._run())

    def add(self, text: str) -> None:
        """The next piece of the reply."""
        self._text += text

    def restart(self) -> None:
        """What was said so far was not the reply: tools run, and it begins anew."""
        self._text = ""

    def close(self) -> str | None:
        """No more previews. The message that shows one, if any; the reply shall replace it."""
        self._closed = True
        return self.message_id

    async def end(self) -> None:
        """Wait until nothing is under way any more."""
        self._closed = True
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        typed = 0.0
        while not self._closed:
            try:
                if typed <= 0:
                    await self._platform.show_typing(self._chat)
                    typed = TYPING_EVERY
                await self._show()
            except (SendLater, SendNever) as error:
                log.debug("no preview in %s: %s", self._chat.chat_id, error)
                if isinstance(error, SendNever):
                    return
            await asyncio.sleep(EDIT_EVERY)
            typed -= EDIT_EVERY

    async def _show(self) -> None:
        text = self._text.strip()[: self._platform.longest_message]
        if not self._platform.can_edit or len(text) < FIRST_AFTER or text == self._shown:
            return
        async with self._lock:
            if self._closed:
                return
            self._shown = text
            sending = asyncio.shield(asyncio.ensure_future(self._put(text)))
            await sending

    async def _put(self, text: str) -> None:
        if self.message_id is None:
            self.message_id = await self._platform.send(self._chat, text)
        else:
            await self._platform.edit(self._chat, self.message_id, text)
