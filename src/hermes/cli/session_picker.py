"""A session picker: arrows move, typing filters, Enter resumes, Esc cancels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermes.cli.output import printable, show_time
from hermes.cli.rows import columns_of, head
from hermes.store.sessions import Listed

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.output import Output

VISIBLE_ROWS = 12
"""Sessions visible at a time."""
HELP = "↑ ↓ choose · type to filter · Enter resumes · Esc cancels"
MARK, GAP = "› ", "  "


class SessionPicker:
    """The state of the picker: the filter, the marked session, and the visible rows."""

    def __init__(self, listed: Sequence[Listed]) -> None:
        self._listed = listed
        self.typed = ""
        """The filter."""
        self._place = 0

    def matching(self) -> list[Listed]:
        """Return the sessions whose title, first words or id contain every word of the filter."""
        words = self.typed.lower().split()
        return [one for one in self._listed if all(word in _searched(one) for word in words)]

    def chosen(self) -> Listed | None:
        """Return the marked session; None if nothing matches."""
        found = self.matching()
        return found[self._place] if found else None

    def move(self, by: int) -> None:
        """Move the mark by `by` rows; it wraps around."""
        if found := self.matching():
            self._place = (self._place + by) % len(found)

    def narrow(self, typed: str) -> None:
        self.typed, self._place = typed, 0

    def rows(self, columns: int) -> list[tuple[bool, str]]:
        """Return the visible rows, each with True if it is marked. A row below shows the full id of the marked
        session."""
        found, first = self.matching(), max(0, self._place - VISIBLE_ROWS + 1)
        seen = [
            (place == self._place, f"{MARK if place == self._place else GAP}{_row(one, columns - len(MARK))}")
            for place, one in list(enumerate(found))[first : first + VISIBLE_ROWS]
        ]
        chosen = self.chosen()
        more = f" · {self._place + 1} of {len(found)}" if len(found) > VISIBLE_ROWS else ""
        below = "no match" if chosen is None else f"{printable(chosen.session.id)}{more}"
        return [*seen, (False, head(below, columns)), (False, head(HELP, columns))]


async def pick_session(listed: Sequence[Listed], output: Output) -> str | None:
    """Let the user pick a session; return its id, or None if they cancel."""
    picker = SessionPicker(listed)
    return await _make_app(picker, output).run_async()


def _make_app(picker: SessionPicker, output: Output) -> Application[str | None]:
    from prompt_toolkit.application import Application
    from prompt_toolkit.input import create_input
    from prompt_toolkit.layout import FormattedTextControl, Layout, Window
    from prompt_toolkit.layout.dimension import Dimension

    def shown() -> StyleAndTextTuples:
        rows = picker.rows(output.get_size().columns)
        marked = [("bold" if is_marked else "", f"\n{row}") for is_marked, row in rows]
        return [("", f"resume: {printable(picker.typed)}"), *marked]

    window = Window(FormattedTextControl(shown), height=Dimension(max=VISIBLE_ROWS + 3), dont_extend_height=True)
    return Application(
        layout=Layout(window),
        key_bindings=_keys(picker),
        # a separate input: the suspended prompt might still consume an Esc from its own
        input=create_input(),
        output=output,
        erase_when_done=True,
    )


def _keys(picker: SessionPicker) -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.keys import Keys

    keys = KeyBindings()

    @keys.add("down")
    @keys.add("c-n")
    def _(_: KeyPressEvent) -> None:
        picker.move(1)

    @keys.add("up")
    @keys.add("c-p")
    def _(_: KeyPressEvent) -> None:
        picker.move(-1)

    @keys.add("backspace")
    def _(_: KeyPressEvent) -> None:
        picker.narrow(picker.typed[:-1])

    @keys.add(Keys.Any)
    def _(event: KeyPressEvent) -> None:
        if event.data.isprintable():
            picker.narrow(picker.typed + event.data)

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        chosen = picker.chosen()
        if chosen is not None:
            event.app.exit(result=chosen.session.id)

    @keys.add("escape", eager=True)
    @keys.add("c-c")
    @keys.add("c-d")
    @keys.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=None)

    return keys


def _searched(one: Listed) -> str:
    return f"{one.session.title or ''} {one.preview} {one.session.id}".lower()


def _row(one: Listed, columns: int) -> str:
    """Return a session's row: last activity, number of messages, title."""
    before = f"{show_time(one.last_active)}  {one.session.message_count:>4}  "
    return f"{before}{head(printable(one.session.title or one.preview), max(8, columns - columns_of(before)))}"
