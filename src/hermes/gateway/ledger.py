"""The ledger of the inbox: what became of its items, and what a chat is told of it, in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.outcomes import Outcome
from hermes.db.queue import Claim
from hermes.gateway.outbound import enqueue_text
from hermes.gateway.platform import Chat, Platform
from hermes.store.store import Store


class Ledger(Struct, frozen=True):
    """Settles claims of the inbox. `wake_delivery` tells the delivery that there is something to send."""

    store: Store
    platforms: Mapping[str, Platform]
    wake_delivery: asyncio.Event

    async def settle(
        self,
        claimed: Claim,
        outcomes: Sequence[Outcome],
        *,
        say: str | None = None,
        edit_id: str | None = None,
        remark: str = "",
    ) -> None:
        """Record what became of the items, and tell the chat of the first one; `remark` comes after that. StaleError
        when the claim was lost."""
        first = claimed.items[0]

        def settle(tx: Tx) -> None:
            queue.settle(tx, claimed, outcomes, now=self.store.clock.now())
            chat = Chat(*first.payload["chat"])
            if say is not None:
                self.enqueue(tx, chat, claimed.lane, say, f"note:{first.key}", edit_id=edit_id)
            if remark:
                self.enqueue(tx, chat, claimed.lane, remark, f"remark:{first.key}")

        await self.store.write(settle)
        if say is not None or remark:
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
