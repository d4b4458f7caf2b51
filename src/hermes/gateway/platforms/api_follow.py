"""Hands in a message and yields the events of its turn until the turn ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import cast

from hermes.events import Failed, Replied, Stopped, TurnEvent
from hermes.gateway.gateway import Gateway
from hermes.gateway.inbox import Received, item_key_of
from hermes.gateway.inbox_record import TurnEnding
from hermes.gateway.platform import Inbound
from hermes.slash.acts import NOT_RUNNING, STOPPED

ENDING_POLL_SECONDS = 1.0
"""Seconds without an event after which the item is looked up: another process may have deleted it."""


async def follow(gateway: Gateway, message: Inbound) -> tuple[Received, AsyncGenerator[TurnEvent, None]]:
    """Hand in a message; return its receipt, once it is committed, and the events of its turn. The caller closes them.

    A repeated message has no second turn: only the end of its first one is yielded, past or future. An author who may
    not talk gets no events.
    """
    events = _follow(gateway, message)
    received = await anext(events)
    assert isinstance(received, Received), "it comes first"
    return received, cast(AsyncGenerator[TurnEvent, None], events)


async def _follow(gateway: Gateway, message: Inbound) -> AsyncGenerator[Received | TurnEvent, None]:
    """Yield the receipt, then the events. The listener starts before the message is handed in, so no event is
    missed."""
    heard: asyncio.Queue[TurnEvent] = asyncio.Queue()
    with gateway.listen(item_key_of(message), heard.put_nowait):
        received = await gateway.receive(message)
        yield received
        if received.verdict.kind != "welcome":
            return
        if received.stopped is not None:
            yield Replied(received.session_id or "", 0, STOPPED if received.stopped else NOT_RUNNING)
            return
        while received.fresh:
            event = await _next_event(gateway, received.item_key, heard)
            yield event
            if isinstance(event, Replied | Stopped | Failed):
                return
    yield await _wait_for_end(gateway, received.item_key)


async def _wait_for_end(gateway: Gateway, item_key: str) -> TurnEnding:
    heard: asyncio.Queue[TurnEvent] = asyncio.Queue()
    with gateway.listen(item_key, heard.put_nowait):
        ending = await gateway.ending_of(item_key)
        while ending is None:
            event = await _next_event(gateway, item_key, heard)
            ending = event if isinstance(event, Replied | Stopped | Failed) else None
        return ending


async def _next_event(gateway: Gateway, item_key: str, heard: asyncio.Queue[TurnEvent]) -> TurnEvent:
    """Return the next event of an item's turn; a Failed event if the item is gone."""
    while True:
        try:
            async with asyncio.timeout(ENDING_POLL_SECONDS):
                return await heard.get()
        except TimeoutError:
            ending = await gateway.ending_of(item_key)
            if isinstance(ending, Failed) and ending.kind == "gone":
                return ending
