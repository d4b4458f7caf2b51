"""A conversation at a terminal: typed messages run in order, and replies are shown as they stream in.

    front ── hear ── waiting ── turn or command ── screen ── front

There are two front ends: `LivePrompt` if rows can be redrawn, else `PlainLines`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress

from msgspec.structs import replace

from hermes.cli.commands import run_command
from hermes.cli.conversation import TerminalConversation
from hermes.cli.front import INDENT, PROMPT, Front, Typed
from hermes.cli.input_line import Pastes
from hermes.cli.output import use_color
from hermes.cli.own_name import advise
from hermes.cli.screen import Screen
from hermes.cli.session_watch import SessionWatch
from hermes.cli.status import ChatStatus, Recap
from hermes.errors import HermesError, StoreError
from hermes.events import Accepted, Failed, TextDelta
from hermes.settings import COLOR
from hermes.slash.context import Again, Say
from hermes.slash.table import find_command

LOOK_SECONDS = 1.0
"""Interval of looking for messages added elsewhere in the session."""

MAX_MESSAGE_ROWS, MAX_REPLY_ROWS = 4, 11
"""Rows shown of the last message and of its reply."""
MAX_RECAP_CHARS = 2000
"""Characters shown of either, since a row of code may be wider than the window."""
MORE = "… (`hermes sessions show {}` shows all of it)"
ANEW = "(A new session begins with your next message.)"
UNANSWERED = "(This message has no reply: `/retry` answers it.)"


class Terminal:
    """Runs typed messages and commands in order. `/stop` and `/quit` run at once."""

    def __init__(
        self,
        conversation: TerminalConversation,
        open_front: Callable[[Terminal], Front],
        typed_before: Sequence[str] = (),
    ) -> None:
        self.conversation = conversation
        self._typed_before = typed_before
        self._front = open_front(self)
        self.screen = self._new_screen()
        """The conversation as rows."""
        self._waiting: deque[Typed] = deque()
        self._wake = asyncio.Event()
        self._stop: asyncio.Event | None = None
        self._code: int | None = None
        self.doing = ""
        """Name of the running command or model; "" when idle."""
        self._watch = SessionWatch(conversation.store)
        self._known: ChatStatus | None = None

    def _new_screen(self) -> Screen:
        return screen_of(self.conversation, lambda: self._front.columns, redraws=self._front.redraws)

    @property
    def status(self) -> ChatStatus:
        """The contents of the status line."""
        return replace(self.conversation.status, gauge=self._watch.gauge)

    @property
    def waiting(self) -> tuple[Typed, ...]:
        """Messages typed while a reply came; they run next."""
        return tuple(self._waiting)

    def begin(self) -> None:
        """Run what was typed before the front end listened."""
        for text in self._typed_before:
            self.hear(Typed(text, text))

    def hear(self, typed: Typed) -> None:
        """Take a typed line: run it, queue it, or stop or leave at once."""
        found = find_command("terminal", typed.shown)
        overtaking = found.command.name if found is not None and found.command.overtakes else ""
        if overtaking == "quit":
            self.leave()
        elif overtaking == "stop" and self._stop is not None:
            self.interrupt()
        elif typed.text.strip():
            self._waiting.append(typed)
            self._wake.set()

    def interrupt(self) -> bool:
        """Stop the running work. Returns False if none runs or it was stopped already."""
        if self._stop is None or self._stop.is_set():
            return False
        self._stop.set()
        return True

    def take_back(self) -> tuple[Typed, ...]:
        """Remove and return the queued messages."""
        taken = self.waiting
        self._waiting.clear()
        return taken

    def leave(self, code: int = 0) -> None:
        """End the conversation. A running reply is stopped; what came so far is stored."""
        self._code = code if self._code is None else self._code
        self.interrupt()
        self._wake.set()

    async def run(self) -> int:
        """Run until the user leaves or the terminal closes. Returns the exit code."""
        listening = asyncio.create_task(self._front.listen())
        listening.add_done_callback(lambda _: self.leave())
        try:
            while (typed := await self._next()) is not None:
                await self._handle(typed)
        finally:
            self._front.close()
            with suppress(OSError):  # the window was closed
                await listening
        return self._code or 0

    async def _next(self) -> Typed | None:
        while self._code is None:
            if self._waiting:
                return self._waiting.popleft()
            self._wake.clear()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                self.conversation.agents.memory.warm_up()  # not at once: a user who leaves right away starts no server
                await self._look_around()
        return None

    async def _look_around(self) -> None:
        """Show messages added elsewhere, and changes of the title or incognito mode."""
        others = await self._watch.look(self.conversation.agent)
        with suppress(StoreError):  # the next message reports the reason
            await self.conversation.look_again()
        if others.messages:
            self.screen.show_others(others)
            await self._front.show_aside()
        elif self.status != self._known:
            self._front.refresh()
        self._known = self.status

    async def _handle(self, typed: Typed) -> None:
        self._front.said(typed.shown)
        self._stop, text = asyncio.Event(), typed.text.strip()
        try:
            if typed.shown.startswith("/"):
                self.doing = text.split(maxsplit=1)[0]
                await self._run_command(text, self._stop)
            else:
                await self._run_turn(Say(text), self._stop)
        except HermesError as error:
            self.screen.say(advise(f"hermes: {error.line()}"))
        finally:
            self._stop, self.doing = None, ""
        self.screen.end()
        await self._front.settle()
        await self._look_around()

    async def _run_command(self, line: str, stop: asyncio.Event) -> None:
        answered = await run_command(self.conversation, line, stop, self._front)
        if answered.text:
            self.screen.say(advise(answered.text))
        if answered.recap is not None:
            self.screen.put(recap_rows(answered.recap, self._new_screen()))
        if answered.say is not None:
            if isinstance(answered.say, Say):
                self.screen.said(PROMPT + Pastes().shorten(answered.say.text).replace("\n", f"\n{INDENT}"))
            await self._run_turn(answered.say, stop)
        if answered.draft:
            self._front.offer_draft(answered.draft)
        if answered.over:
            self.leave()

    async def _run_turn(self, said: Say | Again, stop: asyncio.Event) -> None:
        self.doing = self.conversation.status.model or "the model"
        is_gone = False
        async with aclosing(self.conversation.take_turn(said, stop)) as events:
            async for event in events:
                if isinstance(event, Accepted):
                    self.screen.show_others(await self._watch.accepted(event.session_id, event.message_id))
                self.screen.show(event)
                self._front.refresh()
                is_gone = isinstance(event, Failed) and event.kind == "gone"
        if is_gone:
            await self.conversation.leave("deleted")
            self.screen.add_notice(ANEW)
            self._front.offer_draft(said.text if isinstance(said, Say) else "")
        if self.conversation.session_id is not None:
            await self._watch.turn_over(self.conversation.session_id)


def screen_of(conversation: TerminalConversation, columns: Callable[[], int], *, redraws: bool) -> Screen:
    settings = conversation.app.settings
    colored = use_color(settings.get(COLOR), conversation.app.env)
    return Screen(settings, columns, colored=colored, redraws=redraws)


def recap_rows(recap: Recap, screen: Screen) -> list[str]:
    """Return the last exchange of a session as rows, rendered on `screen`, a fresh one."""
    rows: list[str] = []
    for message in recap.exchange:
        whole, is_said = message.content or "", message.role == "user"
        text = whole[:MAX_RECAP_CHARS]
        if is_said:
            screen.said(PROMPT + Pastes().shorten(text).replace("\n", f"\n{INDENT}"))
        else:
            screen.show(TextDelta(text))
            screen.end_text()
        made, most = screen.take(), MAX_MESSAGE_ROWS if is_said else MAX_REPLY_ROWS
        if len(made) > most or text != whole:
            made = [*made[: most - 1], screen.dim(advise(MORE.format(message.session_id)))]
        rows += made
    return [*rows, screen.dim(UNANSWERED)] if recap.is_unanswered else rows
