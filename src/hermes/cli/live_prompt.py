"""A live prompt that stays below streamed replies: history, completion, multi-line input, and a status line.

Finished rows are printed above it. The growing row, the waiting sign and queued messages are part of the prompt, so
that a redraw removes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hermes.cli.chat_history import open_history
from hermes.cli.editor import edit_text
from hermes.cli.front import INDENT, PROMPT, Typed
from hermes.cli.live_terminal import IS_PRINTING, make_input, make_output
from hermes.cli.output import printable
from hermes.cli.pastes import Pastes
from hermes.cli.repaint import PrintedRows
from hermes.cli.rows import head
from hermes.cli.session_picker import pick_session
from hermes.cli.slash_completer import make_completer
from hermes.cli.terminal import Terminal
from hermes.errors import UsageError
from hermes.files import check_file, unwritable
from hermes.store.sessions import Listed

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.formatted_text import ANSI
    from prompt_toolkit.key_binding import KeyBindings

T = TypeVar("T")
QUIET_START_SECONDS, QUIET_MIDWAY_SECONDS = 0.5, 3.0
"""Delay before the waiting sign is shown: before a row begins, and in the middle of one."""
TICK_SECONDS = 0.2
GATHER_SECONDS = 0.1
"""Finished rows are collected for this long and printed together, since each print redraws the prompt."""
REDRAW_SECONDS = 0.05
"""Least interval between redraws: nobody reads faster, but a model may write faster."""
MIN_FREE_ROWS = 6
"""Rows reserved for the prompt and what is below it."""


class LivePrompt:
    """A front end on prompt_toolkit."""

    redraws = True

    def __init__(self, terminal: Terminal, printed: Sequence[str]) -> None:
        self._terminal = terminal
        self._printed = PrintedRows(printed)
        self._pastes = Pastes()
        self._prompt: PromptSession[str] | None = None
        self._printing: asyncio.Task[None] | None = None
        self._heard_at = 0.0
        self._asks_again = False
        self._drawn: tuple[int, ANSI] | None = None

    @property
    def columns(self) -> int:
        return self._session.output.get_size().columns

    @property
    def _session(self) -> PromptSession[str]:
        assert self._prompt is not None, "listen makes it first"
        return self._prompt

    async def listen(self) -> None:
        self._prompt = self._make()
        ticking = asyncio.create_task(self._tick())
        try:
            await self._prompt.prompt_async(pre_run=self._terminal.begin, set_exception_handler=False)
        except EOFError:
            return
        finally:
            ticking.cancel()

    def said(self, shown: str) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        lines = shown.strip("\n").replace("\n", f"\n{INDENT}")
        self._terminal.screen.said(f"{PROMPT}{lines}")

    def refresh(self) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        if self._printing is not None and not self._printing.done():
            return  # printing redraws the prompt
        if self._terminal.screen.has_finished:
            self._printing = asyncio.create_task(self._print_soon())
        else:
            self._session.app.invalidate()

    async def show_aside(self) -> None:
        await self.settle()

    async def settle(self) -> None:
        if self._printing is not None:
            await self._printing
        await self._print()

    async def lend(self, use: Callable[[], Awaitable[T]]) -> T:
        from prompt_toolkit.application.run_in_terminal import in_terminal

        async with in_terminal():
            return await use()

    async def pick(self, listed: Sequence[Listed]) -> str | None:
        return await self.lend(partial(pick_session, listed, self._session.output))

    def offer_draft(self, text: str) -> None:
        buffer = self._session.default_buffer
        if not buffer.text:
            buffer.insert_text(text)

    def close(self) -> None:
        if self._prompt is not None and self._prompt.app.is_running and not self._prompt.app.is_done:
            self._prompt.app.exit(result="")

    async def _print_soon(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        await self._print()

    async def _print(self) -> None:
        """Print the finished rows above the prompt in one step."""
        from prompt_toolkit.application import run_in_terminal

        def write() -> None:
            output = self._session.output
            rows = self._terminal.screen.take()
            self._printed.add(rows)
            output.write_raw("".join(f"{row}\n" for row in rows))
            output.flush()

        token = IS_PRINTING.set(True)
        try:
            await run_in_terminal(write)
        except OSError:  # the window was closed
            self._terminal.leave()
        finally:
            IS_PRINTING.reset(token)

    async def _tick(self) -> None:
        """Redraw while work is in progress, so that the waiting sign counts seconds."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self._terminal.doing:
                self._session.app.invalidate()

    def _make(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.output.color_depth import ColorDepth
        from prompt_toolkit.styles import Style

        history = self._terminal.conversation.app.home.chat_history_file
        try:
            history.touch(mode=0o600)
            history.chmod(0o600)
            check_file(history)
        except OSError as error:
            raise unwritable(history, error) from error
        prompt: PromptSession[str] = PromptSession(
            self._message,
            history=open_history(history, self._pastes, self._is_kept),
            completer=make_completer(self._terminal.conversation),
            # only for commands: rows for the menu are reserved below the prompt while it may open
            complete_while_typing=Condition(lambda: prompt.default_buffer.text.startswith("/")),
            key_bindings=self._keys(),
            prompt_continuation=INDENT,
            multiline=True,
            erase_when_done=True,
            input=make_input(),
            output=make_output(),
            enable_suspend=True,
            style=Style.from_dict({"status": "dim" if self._terminal.screen.colored else ""}),
            color_depth=None if self._terminal.screen.colored else ColorDepth.DEPTH_1_BIT,
        )
        _add_row_below(prompt, self._status)
        prompt.app.min_redraw_interval = REDRAW_SECONDS
        self._printed.heed_width(prompt.app)
        prompt.default_buffer.on_text_changed += self._reset_leaving
        return prompt

    def _is_kept(self) -> bool:
        """Return False for incognito input, and while a queued command may turn incognito on."""
        ahead = (self._terminal.doing, *(typed.shown for typed in self._terminal.waiting))
        return not self._terminal.conversation.is_incognito and not any(text.startswith("/memory") for text in ahead)

    def _keys(self) -> KeyBindings:
        from prompt_toolkit.enums import DEFAULT_BUFFER
        from prompt_toolkit.filters import has_focus
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

        keys = KeyBindings()
        typing = has_focus(DEFAULT_BUFFER)

        @keys.add("enter", filter=typing)
        def _(event: KeyPressEvent) -> None:
            text = event.current_buffer.text
            event.current_buffer.reset(append_to_history=bool(text.strip()))
            self._terminal.hear(Typed(self._pastes.expand(text), text))

        @keys.add("<bracketed-paste>", filter=typing)
        def _(event: KeyPressEvent) -> None:
            pasted = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(self._pastes.shorten(pasted))

        @keys.add("backspace", filter=typing)
        def _(event: KeyPressEvent) -> None:
            before = event.current_buffer.document.text_before_cursor
            event.current_buffer.delete_before_cursor(count=len(self._pastes.mark_before(before)) or event.arg)

        @keys.add("c-x", "c-e", filter=typing)
        def _(event: KeyPressEvent) -> None:
            event.app.create_background_task(self._edit(event.current_buffer))

        @keys.add("escape", "enter", filter=typing)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c", filter=typing)
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            if self._terminal.interrupt():
                self._put_back(event.app.current_buffer)
                return
            if event.app.current_buffer.text:
                event.app.current_buffer.reset()
            elif self._asks_again:
                self._terminal.leave()
            else:
                self._asks_again = True

        return keys

    def _put_back(self, buffer: Buffer) -> None:
        """Put queued messages back into the prompt, before the current input."""
        if ahead := [typed.shown for typed in self._terminal.take_back()]:
            buffer.text = "\n\n".join([*ahead, *([buffer.text] if buffer.text else [])])
            buffer.cursor_position = len(buffer.text)

    async def _edit(self, buffer: Buffer) -> None:
        """Open the current input in the user's editor, and put the result into the prompt."""
        try:
            edited = await self.lend(partial(edit_text, self._pastes.expand(buffer.text)))
        except UsageError as error:
            self._terminal.screen.say(f"hermes: {error.line()}")
            await self.show_aside()
            return
        if edited is not None:
            buffer.text = self._pastes.shorten(edited.rstrip())
            buffer.cursor_position = len(buffer.text)

    def _reset_leaving(self, _: Buffer) -> None:
        self._asks_again = False

    def _message(self) -> ANSI:
        """Return the text before the cursor. Cached per redraw, since prompt_toolkit asks ten times for it."""
        drawing = self._session.app.render_counter
        if self._drawn is None or self._drawn[0] != drawing:
            self._drawn = drawing, self._make_message()
        return self._drawn[1]

    def _make_message(self) -> ANSI:
        from prompt_toolkit.formatted_text import ANSI

        screen, waiting = self._terminal.screen, self._terminal.waiting
        rows = screen.rows()[-max(1, self._session.output.get_size().rows - MIN_FREE_ROWS) :]
        if sign := self._waiting_sign():
            rows.append(sign)
        rows += [screen.dim(head(f"next: {printable(typed.shown)}", self.columns)) for typed in waiting]
        if rows and rows[-1]:
            rows.append("")
        return ANSI("\n".join([*rows, screen.person(PROMPT)]))

    def _waiting_sign(self) -> str:
        doing, screen = self._terminal.doing, self._terminal.screen
        quiet = asyncio.get_running_loop().time() - self._heard_at
        if not doing or quiet < (QUIET_MIDWAY_SECONDS if screen.is_growing else QUIET_START_SECONDS):
            return ""
        return screen.dim(f"{head(printable(doing), self.columns - 30)} … {quiet:.0f} s, Ctrl-C stops it")

    def _status(self) -> str:
        if self._asks_again:
            return "Ctrl-C again to leave"
        return self._terminal.status.line(self.columns)


def _add_row_below(prompt: PromptSession[str], text: Callable[[], str]) -> None:
    """Add a row right below the prompt; prompt_toolkit's toolbar would be at the bottom of the window."""
    from prompt_toolkit.layout import FormattedTextControl, HSplit, Window

    assert isinstance(prompt.layout.container, HSplit), "that is how a session is laid out"
    row = Window(FormattedTextControl(lambda: [("class:status", text())]), height=1, dont_extend_height=True)
    prompt.layout.container.children.append(row)
