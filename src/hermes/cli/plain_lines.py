"""A front end for terminals that cannot redraw rows (`TERM=dumb`) and for output to a file."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from hermes.cli.front import PROMPT, Typed, missing_session_error
from hermes.cli.output import printable
from hermes.cli.terminal import Terminal
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
