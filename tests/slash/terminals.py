"""A conversation at a terminal, without the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hermes.cli.commands import run_command
from hermes.cli.conversation import TerminalConversation
from hermes.clock import SystemClock
from tests.gateway.core import load_app


@asynccontextmanager
async def at_terminal(home: Path, **settings: object) -> AsyncIterator[TerminalConversation]:
    app = load_app(home, SystemClock(), memory__review_every=0, **settings)
    async with await app.open_store() as store:
        conversation = TerminalConversation(app, store)
        try:
            yield conversation
        finally:
            await conversation.end()


async def say(conversation: TerminalConversation, text: str) -> None:
    async for _ in conversation.say(text, asyncio.Event()):
        pass


async def ask(conversation: TerminalConversation, line: str) -> str:
    return (await run_command(conversation, line, asyncio.Event())).text
