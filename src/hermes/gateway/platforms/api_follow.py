"""Hand a message in and hear of it until its turn has ended."""

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

LOOK_EVERY = 1.0
"""Seconds of silence after which we look whether what we wait for is still there: another process may delete it."""


async def follow(gateway: Gateway, message: Inbound) -> tuple[Received, AsyncGenerator[TurnEvent, None]]:
    """What became of the message, once it is committed, and the events of its turn, the last one its end: close them.

    A message that was handed in before has no second turn: only its end is heard, be it long past or yet to come.
    Who may not talk hears nothing.
    """
    events = _follow(gateway, message)
    received = await anext(events)
    assert isinstance(received, Received), "it comes first"
    return received, cast(AsyncGenerator[TurnEvent, None], events)


async def _follow(gateway: Gateway, message: Inbound) -> AsyncGenerator[Received | TurnEvent, None]:
    """One generator, begun before the message is handed in: no event is missed, and whoever closes it hears no more."""
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
    """The next event of an item's turn; one that is gone has failed."""
    while True:
        try:
            async with asyncio.timeout(LOOK_EVERY):
                return await heard.get()
        except TimeoutError:
            ending = await gateway.ending_of(item_key)
            if isinstance(ending, Failed) and ending.kind == "gone":
                return ending
