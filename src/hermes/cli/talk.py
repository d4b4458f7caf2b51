"""A conversation at a terminal, from greeting to end.

A front end for terminals that cannot redraw rows (`TERM=dumb`) and for output to a file.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from hermes import __version__
from hermes.cli.conversation import TerminalConversation
from hermes.cli.front import PROMPT, Front, Typed, missing_session_error
from hermes.cli.live_prompt import LivePrompt
from hermes.cli.output import can_redraw, printable
from hermes.cli.own_name import advise
from hermes.cli.start import on_signals
from hermes.cli.terminal import Terminal, recap_rows, screen_of
from hermes.config_file import load_shared_env
from hermes.embedded.connect import keeping
from hermes.embedded.rendezvous import find_place
from hermes.store.sessions import Listed

T = TypeVar("T")

QUIET_SECONDS, PROGRESS_SECONDS = 0.5, 10.0
"""Silence after which a progress row is printed, and interval between further ones."""


class PlainLines:
    """Reads whole lines from the terminal, and writes rows once they are finished."""

    redraws = False

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._closed = asyncio.Event()
        self._asks_again = False
        self._wrote_at = 0.0
        self._telling: asyncio.Task[None] | None = None
        self._read: Callable[[], None] = lambda: None

    @property
    def columns(self) -> int:
        return shutil.get_terminal_size().columns

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        descriptor = sys.stdin.fileno()
        buffered = b""

        def read() -> None:
            nonlocal buffered
            data = os.read(descriptor, 4096)
            if not data:
                self._write("\n")
                self._closed.set()
            *lines, buffered = (buffered + data).split(b"\n")
            for line in lines:
                self._asks_again = False
                text = line.decode(errors="replace")
                self._terminal.hear(Typed(text, text))
                if not line.strip():
                    self._ask()

        def interrupt() -> None:
            if self._terminal.interrupt():
                for typed in self._terminal.take_back():
                    self._write(f"(not sent: {printable(typed.shown)})\n")
                return
            if self._asks_again:
                self._terminal.leave()
            self._asks_again = True
            self._write("\n(Ctrl-C again to leave)\n")
            self._ask()

        self._read = read
        loop.add_reader(descriptor, read)
        loop.add_signal_handler(signal.SIGINT, interrupt)
        self._ask()
        self._terminal.begin()
        try:
            await self._closed.wait()
        finally:
            loop.remove_reader(descriptor)
            loop.remove_signal_handler(signal.SIGINT)

    def said(self, _shown: str) -> None:
        """Start reporting progress. The terminal has echoed the line already."""
        self._telling = asyncio.create_task(self._show_progress())

    async def _show_progress(self) -> None:
        """Print a progress row whenever nothing was shown for a while."""
        now = asyncio.get_running_loop().time
        begun = self._wrote_at = now()
        wait = QUIET_SECONDS
        while True:
            await asyncio.sleep(wait)
            if now() - self._wrote_at >= wait:
                self._write(f"({self._terminal.doing} … {now() - begun:.0f} s, Ctrl-C stops it)\n")
            wait = PROGRESS_SECONDS

    def refresh(self) -> None:
        if rows := self._terminal.screen.take():
            self._wrote_at = asyncio.get_running_loop().time()
            self._write("".join(f"{row}\n" for row in rows))

    async def show_aside(self) -> None:
        self._write("\n")
        await self.settle()

    async def settle(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self.refresh()
        if not self._closed.is_set() and not self._terminal.waiting:
            self._ask()

    async def lend(self, use: Callable[[], Awaitable[T]]) -> T:
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        loop.remove_reader(descriptor)
        try:
            return await use()
        finally:
            loop.add_reader(descriptor, self._read)

    async def pick(self, listed: Sequence[Listed]) -> str | None:  # noqa: ARG002 - the shape
        raise missing_session_error()

    def offer_draft(self, text: str) -> None:
        """Do nothing: the terminal owns the line being typed."""

    def close(self) -> None:
        self._closed.set()

    def _ask(self) -> None:
        self._write(PROMPT)

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError:  # the window was closed
            self._closed.set()


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
