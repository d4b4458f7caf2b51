"""A conversation at a terminal from its greeting to its end."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress

from hermes import __version__
from hermes.cli.conversation import TerminalConversation
from hermes.cli.front import Front
from hermes.cli.live_prompt import LivePrompt
from hermes.cli.output import can_redraw
from hermes.cli.own_name import advise
from hermes.cli.plain_lines import PlainLines
from hermes.cli.signals import on_signals
from hermes.cli.terminal import Terminal, recap_rows, screen_of
from hermes.config_file import load_shared_env
from hermes.embedded.connect import keeping
from hermes.embedded.place import find_place

GREETING = f"hermes {__version__} · /help, /unfold (tool calls), Alt-Enter (new line), Ctrl-D (leave)"
PLAIN_GREETING = f"hermes {__version__} · /help, /unfold (tool calls), Ctrl-D (leave)"
"""Where a line is all that can be typed."""
FINISHING = "Telling memory the rest; Ctrl-C leaves that to another process …"
CLEAR_ROW = "\x1b[K"
PATIENCE = 0.5
"""Seconds before anything is said of the end."""


async def talk(conversation: TerminalConversation, typed: Sequence[str] = ()) -> int:
    """Talk, `typed` first, until the person leaves or the terminal goes away. A memory server of ours that runs is kept
    so long: who comes back to an open chat finds it there."""
    home = conversation.app.home
    with keeping(find_place(home, load_shared_env(home))):
        code = await _talk(conversation, typed)
    await _leave(conversation)
    return code


async def _talk(conversation: TerminalConversation, typed: Sequence[str]) -> int:
    greeting = await _greet(conversation)
    conversation.agents.ask_for_models()

    def open_front(terminal: Terminal) -> Front:
        return LivePrompt(terminal, greeting) if can_redraw() else PlainLines(terminal)

    terminal = Terminal(conversation, open_front, typed)
    # A closed window and a polite end stop the reply and keep it, rather than losing it.
    with on_signals(("SIGHUP", "SIGTERM"), lambda number: terminal.leave(128 + number)):
        code = await terminal.run()
    if unsaid := len(terminal.waiting):
        with suppress(OSError):  # the window was closed
            sys.stdout.write(f"{unsaid} {'message was' if unsaid == 1 else 'messages were'} not said.\n")
            sys.stdout.flush()
    return code


async def _greet(conversation: TerminalConversation) -> list[str]:
    """Print how the conversation begins; the rows of that."""
    columns = shutil.get_terminal_size().columns
    screen = screen_of(conversation, lambda: columns, redraws=can_redraw())
    screen.say(GREETING if can_redraw() else PLAIN_GREETING)
    screen.end()
    if (recap := await conversation.recap()) is not None:
        screen.say(recap.headline)
        screen.put(recap_rows(recap, screen_of(conversation, lambda: columns, redraws=can_redraw())))
        screen.end()
    rows = screen.take()
    sys.stdout.write("".join(f"{row}\n" for row in rows))
    sys.stdout.flush()
    return rows


async def _leave(conversation: TerminalConversation) -> None:
    """Close the session, and say so when it takes a while: nobody has to wait for it. The terminal may be gone."""
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
