"""A conversation at a terminal, from greeting to end."""

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
"""The greeting for terminals without multi-line input."""
FINISHING = "Saving to memory; Ctrl-C leaves that to a background process …"
CLEAR_ROW = "\x1b[K"
CLOSING_NOTICE_SECONDS = 0.5
"""Delay before the closing message is shown."""


async def talk(conversation: TerminalConversation, typed: Sequence[str] = ()) -> int:
    """Run the conversation, `typed` first, until the user leaves or the terminal closes. Keeps our memory server
    running meanwhile."""
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
    # a closed window or SIGTERM stops the reply and stores what came so far
    with on_signals(("SIGHUP", "SIGTERM"), lambda number: terminal.leave(128 + number)):
        code = await terminal.run()
    if unsent := len(terminal.waiting):
        with suppress(OSError):  # the window was closed
            sys.stdout.write(f"{unsent} {'message was' if unsent == 1 else 'messages were'} not sent.\n")
            sys.stdout.flush()
    return code


async def _greet(conversation: TerminalConversation) -> list[str]:
    """Print the greeting and the recap, and return their rows."""
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
    """Close the session. Shows a message if that takes a while; Ctrl-C leaves the rest to a background process. The
    terminal may be gone."""
    here = conversation.session_id
    leaving = asyncio.create_task(conversation.end())
    with suppress(OSError), on_signals(["SIGINT"], lambda _: leaving.cancel()):
        await _show_progress(leaving, FINISHING)
    if leaving.cancelled():
        conversation.is_hurried = True
        await conversation.end()
    with suppress(OSError):
        if here is not None:
            sys.stdout.write(advise(f"`hermes chat -s {here}` resumes it.\n"))
        sys.stdout.flush()


async def _show_progress(work: asyncio.Task[bool], text: str) -> None:
    """Print `text` and the elapsed seconds while `work` runs, once it takes more than a moment."""
    begun = asyncio.get_running_loop().time()
    redraws, wait = can_redraw(), CLOSING_NOTICE_SECONDS
    while not (await asyncio.wait({work}, timeout=wait))[0]:
        if redraws:
            sys.stdout.write(f"\r{text} {asyncio.get_running_loop().time() - begun:.0f} s")
        elif wait == CLOSING_NOTICE_SECONDS:
            sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        wait = 1.0
    if redraws and wait != CLOSING_NOTICE_SECONDS:
        sys.stdout.write(f"\r{CLEAR_ROW}")
