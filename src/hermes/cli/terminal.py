"""The conversation at a terminal: a prompt with history and completion, replies as they come, a status line."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING

from hermes import __version__
from hermes.cli.conversation import COMMANDS, Conversation
from hermes.cli.output import print_error, printable, say
from hermes.errors import HermesError
from hermes.events import (
    Failed,
    MemoryUpdated,
    Notice,
    ReasoningDelta,
    Replied,
    Stopped,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)
from hermes.settings import COLOR, MEMORY_NOTICES, SHOW_REASONING

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

DIM, RESET = "\x1b[2m", "\x1b[0m"


async def talk(conversation: Conversation) -> int:
    """Talk until the person leaves."""
    say(f"hermes {__version__} · /help for commands, Alt-Enter for a new line, Ctrl-D to leave")
    prompt = _make_prompt(conversation)
    waiting: list[str] = []
    while True:
        text = waiting.pop(0) if waiting else await _ask(prompt)
        if text is None:
            return 0
        if not text.strip():
            continue
        if text.startswith("/"):
            if await _run_command(conversation, text.strip()):
                return 0
            continue
        waiting += await _run_turn(conversation, text.strip())


def _make_prompt(conversation: Conversation) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    history = conversation.app.home.chat_history_file
    history.touch(mode=0o600)
    return PromptSession(
        "› ",
        history=FileHistory(str(history)),
        completer=WordCompleter([f"/{name}" for name in COMMANDS], sentence=True),
        complete_while_typing=True,
        key_bindings=keys,
        bottom_toolbar=lambda: f" {conversation.status} ",
    )


async def _ask(prompt: PromptSession[str]) -> str | None:
    """What the person typed; None when they want to leave. Ctrl-C clears the line."""
    while True:
        try:
            return await prompt.prompt_async()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return None


async def _run_command(conversation: Conversation, line: str) -> bool:
    """Run a slash command; True when the person leaves."""
    try:
        answered = await conversation.command(line)
    except HermesError as error:
        print_error(error)
        return False
    if answered.text:
        say(printable(answered.text))
    return answered.over


async def _run_turn(conversation: Conversation, text: str) -> list[str]:
    """One turn. Returns what the person typed meanwhile: it is said next."""
    stop = asyncio.Event()
    typed: list[str] = []

    def hear(line: str) -> None:
        if line == "/stop":
            stop.set()
        elif line:
            typed.append(line)

    screen = Screen(conversation)
    with _interrupts(stop), _typed_lines(hear):
        try:
            async with aclosing(conversation.say(text, stop)) as events:
                async for event in events:
                    screen.show(event)
        except HermesError as error:
            print_error(error)
    return typed


@contextmanager
def _interrupts(stop: asyncio.Event) -> Iterator[None]:
    """While a turn runs, Ctrl-C stops it rather than the program."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, stop.set)
    except NotImplementedError:  # Windows: Ctrl-C ends the program there
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@contextmanager
def _typed_lines(hear: Callable[[str], None]) -> Iterator[None]:
    """While a turn runs, whole lines that are typed are heard."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    buffered = b""

    def read() -> None:
        nonlocal buffered
        data = os.read(descriptor, 4096)
        if not data:
            loop.remove_reader(descriptor)
        *lines, buffered = (buffered + data).split(b"\n")
        for line in lines:
            hear(line.decode(errors="replace").strip())

    try:
        loop.add_reader(descriptor, read)
    except (NotImplementedError, PermissionError):  # Windows consoles and plain files cannot be watched
        yield
        return
    try:
        yield
    finally:
        loop.remove_reader(descriptor)


class Screen:
    """Shows what happens in a turn, as it happens."""

    def __init__(self, conversation: Conversation) -> None:
        settings = conversation.app.settings
        color = settings.get(COLOR)
        self._colored = color == "always" or (color == "auto" and "NO_COLOR" not in conversation.app.env)
        self._notices = settings.get(MEMORY_NOTICES)
        self._reasoning = settings.get(SHOW_REASONING)
        self._at_line_start = True

    def show(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text):
                self._write(printable(text))
            case ReasoningDelta(text) if self._reasoning:
                self._write(self._dim(printable(text)))
            case ToolStarted(name=name, arguments=arguments):
                self._line(self._dim(f"· {name} {printable(' '.join(arguments.split()))[:100]}"))
            case ToolFinished(name=name, result=result, ok=False):
                self._line(self._dim(f"· {name}: {printable(' '.join(result.split()))[:160]}"))
            case MemoryUpdated(text=text) if self._notices:
                self._line(f"💾 Memory updated: {printable(text)}")
            case Notice(text):
                self._line(self._dim(printable(text)))
            case Failed(message=message):
                self._line(f"hermes: {printable(message)}")
            case Stopped():
                self._line(self._dim("(stopped)"))
            case Replied():
                self._line("")
            case _:
                pass

    def _line(self, text: str) -> None:
        if not self._at_line_start:
            self._write("\n")
        if text:
            self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._at_line_start = text.endswith("\n") if text else self._at_line_start

    def _dim(self, text: str) -> str:
        return f"{DIM}{text}{RESET}" if self._colored else text
