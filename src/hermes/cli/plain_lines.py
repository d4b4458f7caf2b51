"""A front for terminals that cannot redraw a row (`TERM=dumb`) and for output that goes to a file."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from hermes.cli.talk import PROMPT, Talk, Typed, which_session
from hermes.store.sessions import Listed

T = TypeVar("T")


class PlainLines:
    """Reads lines as the terminal gives them, and writes rows when they are finished."""

    redraws = False

    def __init__(self) -> None:
        self._closed = asyncio.Event()
        self._read: Callable[[], None] = lambda: None

    @property
    def columns(self) -> int:
        return shutil.get_terminal_size().columns

    async def listen(self, talk: Talk) -> None:
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
                text = line.decode(errors="replace")
                talk.hear(Typed(text, text))
                if not line.strip():
                    self._ask()

        def interrupt() -> None:
            if not talk.interrupt():
                talk.leave()

        self._read = read
        loop.add_reader(descriptor, read)
        loop.add_signal_handler(signal.SIGINT, interrupt)
        self._ask()
        try:
            await self._closed.wait()
        finally:
            loop.remove_reader(descriptor)
            loop.remove_signal_handler(signal.SIGINT)

    def said(self, talk: Talk, shown: str) -> None:
        """The terminal has shown it already."""

    def refresh(self, talk: Talk) -> None:
        self._write("".join(f"{row}\n" for row in talk.screen.take()))

    async def show_aside(self, talk: Talk) -> None:
        self._write("\n")
        await self.settle(talk)

    async def settle(self, talk: Talk) -> None:
        self.refresh(talk)
        if not self._closed.is_set() and not talk.waiting:
            self._ask()

    async def lend(self, use: Callable[[], Awaitable[T]]) -> T:
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        loop.remove_reader(descriptor)
        try:
            return await use()
        finally:
            loop.add_reader(descriptor, self._read)

    async def pick(self, listed: Sequence[Listed]) -> str | None:  # noqa: ARG002 - the shape
        raise which_session()

    def offer_draft(self, text: str) -> None:
        """The terminal itself keeps the line that is typed."""

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
