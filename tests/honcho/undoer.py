"""A host that is killed right after it retracted a turn: `python -m tests.honcho.undoer` says two turns, waits for
their delivery, retracts the last one and dies before that is delivered."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable

from hermes.agent.undo import undo
from hermes.app import App
from hermes.cli.conversation import TerminalConversation
from hermes.memory.caller import Memory
from hermes.slash.context import Beginning, Say


async def killed(self: Memory, lanes: Iterable[str]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def talk() -> None:
    app = App.load()
    async with await app.open_store() as store:
        conversation = TerminalConversation(app, store)
        for text in ("My cat is called Mitzi.", "My dog is called Zorro."):
            async for _ in conversation.take_turn(Say(text), asyncio.Event()):
                pass
        agent = await conversation.place()
        assert not isinstance(agent, Beginning)
        assert isinstance(agent.memory, Memory)
        await agent.memory.flush(120.0)
        Memory.undone = killed  # type: ignore[method-assign]
        await undo(agent, 1, "c", asyncio.Event())


if __name__ == "__main__":
    asyncio.run(talk())
