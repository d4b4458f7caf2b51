"""A terminal and a chat on which commands are given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hermes.cli.commands import run_command
from hermes.cli.conversation import TerminalConversation
from hermes.clock import SystemClock
from hermes.slash.context import Say
from tests.gateway.core import load_app, message, running_core


@asynccontextmanager
async def at_terminal(
    home: Path, for_one_turn: bool = False, /, **settings: object
) -> AsyncIterator[TerminalConversation]:
    app = load_app(home, SystemClock(), memory__review_every=0, **settings)
    async with await app.open_store() as store:
        conversation = TerminalConversation(app, store, for_one_turn=for_one_turn)
        try:
            yield conversation
        finally:
            await conversation.end()


async def say(conversation: TerminalConversation, text: str) -> None:
    async for _ in conversation.take_turn(Say(text), asyncio.Event()):
        pass


async def ask(conversation: TerminalConversation, line: str) -> str:
    return (await run_command(conversation, line, asyncio.Event())).text


async def in_chat(home: Path, *texts: str) -> list[str]:
    """Send messages to a chat, one after another, and return the chat's replies."""
    async with running_core(home) as core:
        for number, text in enumerate(texts, start=1):
            await core.platform.deliver(message(text))
            await core.platform.until(lambda wanted=number: len(core.platform.sent) == wanted)  # type: ignore[misc]
        return core.platform.texts("7")
