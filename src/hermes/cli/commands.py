"""Slash commands at a terminal."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections import Counter
from collections.abc import Sequence
from functools import partial

from msgspec import Struct, field

from hermes.agent.agent import Agent
from hermes.cli.clipboard import copy_text
from hermes.cli.conversation import TerminalConversation, find_live
from hermes.cli.editor import edit_text
from hermes.cli.front import Front, missing_session_error
from hermes.cli.output import printable, show_time
from hermes.cli.recap import Recap
from hermes.cli.rows import head
from hermes.errors import UsageError
from hermes.slash.acts import BEGINS
from hermes.slash.here import Again, Beginning, Console, Say, Surface, Word
from hermes.slash.table import find_command, unknown_command
from hermes.store.sessions import Listed
from hermes.types import Message

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
    """A terminal as commands see it: a `Here` with a `Console`."""

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
            raise UsageError("there are no sessions yet", hint="Your first message starts one")
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
