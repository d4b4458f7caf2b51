"""Slash commands at a terminal.

Copying to the clipboard: by the terminal (OSC 52, which works over SSH) and by a clipboard program if installed.
"""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct, field

from hermes.agent.agent import Agent
from hermes.cli.conversation import TerminalConversation, find_live
from hermes.cli.front import Front, missing_session_error
from hermes.cli.input_line import edit_text
from hermes.cli.output import printable, show_time
from hermes.cli.rows import head
from hermes.cli.status import Recap
from hermes.errors import UsageError
from hermes.slash.acts import BEGINS
from hermes.slash.context import Again, Beginning, Console, Say, Surface, Word
from hermes.slash.table import find_command, unknown_command
from hermes.store.sessions import Listed
from hermes.types import Message

MAX_BYTES = 1_000_000
"""Longer texts are refused."""
MAX_SEQUENCE_CHARS = 100_000
"""Longest OSC 52 sequence that common terminals accept, in characters."""
NO_CLIPBOARD = "no clipboard program is installed here"
COPY_TIMEOUT_SECONDS = 3.0
"""Time limit for a clipboard program."""


async def copy_text(text: str, env: Mapping[str, str] = os.environ) -> str:
    """Copy a text without its control characters and return how it was copied. Raises UsageError if neither way
    works."""
    data = printable(text).encode("utf-8", "replace")
    if len(data) > MAX_BYTES:
        raise UsageError(f"the text is larger than {MAX_BYTES:,} bytes", hint="Use `/save FILE` instead")
    taken = await _give_to_program(data, env)
    asked = _ask_terminal(data, env)
    if taken is not None:
        return f"is in the clipboard ({taken})"
    if asked:
        return "was sent to the terminal's clipboard (OSC 52; some terminals ignore it)"
    raise UsageError(NO_CLIPBOARD, hint="Use `/save FILE` instead")


def _ask_terminal(data: bytes, env: Mapping[str, str]) -> bool:
    encoded = base64.b64encode(data).decode()
    if not sys.stdout.isatty() or env.get("TERM", "dumb") in ("dumb", "linux") or len(encoded) > MAX_SEQUENCE_CHARS:
        return False
    sys.stdout.write(f"\x1b]52;c;{encoded}\a")
    sys.stdout.flush()
    return True


async def _give_to_program(data: bytes, env: Mapping[str, str]) -> str | None:
    """Return the name of the program that accepted the text, or None."""
    for command in _programs(env):
        if shutil.which(command[0], path=env.get("PATH")) is None:
            continue
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)
        try:
            async with asyncio.timeout(COPY_TIMEOUT_SECONDS):
                await process.communicate(data)
        except TimeoutError:
            process.kill()
            await process.wait()
            continue
        if process.returncode == 0:
            return command[0]
    return None


def _programs(env: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    if sys.platform == "darwin":
        yield ("pbcopy",)
    if env.get("WAYLAND_DISPLAY"):
        yield ("wl-copy",)
    if env.get("DISPLAY"):
        yield ("xclip", "-selection", "clipboard")
        yield ("xsel", "--clipboard", "--input")


NO_SESSIONS = "there are no sessions yet"
ECHO_COLUMNS = 60
"""Width of the repeated question."""
LISTED_COUNT, OFFERED_COUNT = 10, 300
"""Sessions that a list shows, and that completion and the picker offer."""


class Answered(Struct, frozen=True):
    """The result of a slash command. `say` runs as the next turn, `draft` is put into the prompt for editing, `over`
    ends the conversation, and `recap` summarises a resumed session."""

    text: str
    over: bool = False
    say: Say | Again | None = None
    draft: str = ""
    recap: Recap | None = None


async def run_command(
    conversation: TerminalConversation, line: str, stop: asyncio.Event, front: Front | None = None
) -> Answered:
    """Run a slash command until `stop` is set. Raises UsageError for an unknown command. Without a terminal, pass no
    `front`."""
    typed = find_command("terminal", line)
    if typed is None:
        raise unknown_command("terminal", line)
    here = AtTerminal(conversation, stop, front)
    answer = await typed.run(here)
    await conversation.look_again()
    if isinstance(answer, Say | Again):
        notice = f"Asking again: “{head(printable(answer.said), ECHO_COLUMNS)}”" if isinstance(answer, Again) else ""
        return Answered(notice, here.is_over, answer)
    return Answered(answer, here.is_over, draft=here.draft, recap=here.recap)


class AtTerminal(Struct):
    """A terminal as commands see it: a `CommandContext` with a `Console`."""

    conversation: TerminalConversation
    stop: asyncio.Event
    front: Front | None = None
    is_over: bool = False
    surface: Surface = "terminal"
    cause: str = field(default_factory=lambda: secrets.token_hex(16))
    draft: str = ""
    recap: Recap | None = None

    @property
    def console(self) -> Console:
        return self

    async def place(self) -> Agent | Beginning:
        return await self.conversation.place()

    def may_take_back(self, message: Message) -> bool:  # noqa: ARG002 - the owner may
        return True

    async def begin_session(self) -> str:
        await self.conversation.leave()
        return BEGINS

    async def list_sessions(self) -> str:
        # id, two gaps and the time take 44 columns.
        room = max(16, shutil.get_terminal_size().columns - 44)
        lines = [f"{one.session.id}  {show_time(one.last_active)}  {_label(one, room)}" for one in await self._recent()]
        return "\n".join([*lines, "`/resume ID` resumes one."]) if lines else "No sessions yet."

    async def recent_sessions(self, typed: str) -> Sequence[Word]:
        recent = await self._recent(OFFERED_COUNT if typed else LISTED_COUNT)
        named = Counter(one.session.title for one in recent)
        titles = [
            (title, one.session.id)
            for one in recent
            if typed and (title := one.session.title) and named[title] == 1 and title.isprintable()
        ]
        return [*((one.session.id, _label(one, 40)) for one in recent), *titles]

    async def _recent(self, limit: int = LISTED_COUNT) -> list[Listed]:
        store = self.conversation.store
        return await store.read(lambda tx: store.sessions.recent(tx, limit=limit))

    async def choose_session(self) -> str | None:
        if self.front is None:
            raise missing_session_error()
        listed = await self._recent(OFFERED_COUNT)
        if not listed:
            raise UsageError(NO_SESSIONS, hint="Your first message starts one")
        return await self.front.pick(listed)

    async def edit(self, text: str) -> str | None:
        if self.front is None:
            raise UsageError("/edit needs a terminal", hint="Run `hermes chat` in one")
        return await self.front.lend(partial(edit_text, text))

    async def resume(self, name: str) -> str:
        store = self.conversation.store
        await self.conversation.resume(await store.read(lambda tx: find_live(store, tx, name)))
        self.recap = await self.conversation.recap()
        return "" if self.recap is None else self.recap.headline

    async def copy(self, text: str) -> str:
        return await copy_text(text)

    def offer_draft(self, text: str) -> None:
        self.draft = text

    def leave(self) -> None:
        self.is_over = True


def _label(listed: Listed, columns: int) -> str:
    return head(listed.session.title or listed.preview, columns)
