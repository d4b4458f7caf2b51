"""The end of a conversation at a terminal: telling memory the rest takes a while, and nobody has to wait for it."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from hermes.cli.conversation import TerminalConversation
from hermes.cli.output import can_redraw
from hermes.cli.own_name import advise
from hermes.cli.signals import on_signals

FINISHING = "Telling memory the rest; Ctrl-C leaves that to another process …"
CLEAR_ROW = "\x1b[K"
PATIENCE = 0.5
"""Seconds before anything is said."""


async def leave(conversation: TerminalConversation) -> None:
    """Close the session, and say so when it takes a while. The terminal may be gone."""
    here = conversation.session_id
    leaving = asyncio.create_task(conversation.end())
    with suppress(OSError), on_signals(["SIGINT"], lambda _: leaving.cancel()):
        await _tell_while(leaving, FINISHING)
    if leaving.cancelled():
        conversation.is_hurried = True
        await conversation.end()
    with suppress(OSError):
        if here is not None:
            sys.stdout.write(advise(f"`hermes chat -s {here}` goes on with it.\n"))
        sys.stdout.flush()


async def _tell_while(work: asyncio.Task[bool], text: str) -> None:
    """Say what is done and for how long, once it takes more than a moment, until it is over."""
    begun = asyncio.get_running_loop().time()
    redraws, wait = can_redraw(), PATIENCE
    while not (await asyncio.wait({work}, timeout=wait))[0]:
        if redraws:
            sys.stdout.write(f"\r{text} {asyncio.get_running_loop().time() - begun:.0f} s")
        elif wait == PATIENCE:
            sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        wait = 1.0
    if redraws and wait != PATIENCE:
        sys.stdout.write(f"\r{CLEAR_ROW}")
