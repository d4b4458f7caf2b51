"""A list of sessions to choose from: arrows move, letters narrow it down, Enter takes one, Esc leaves."""

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

SHOWN = 12
"""Sessions that are to be seen at a time."""
HELP = "↑ ↓ choose · type to filter · Enter goes on · Esc leaves"
MARK, GAP = "› ", "  "


class SessionPicker:
    """What is to be seen of a list of sessions, and what a key does to it."""

    def __init__(self, listed: Sequence[Listed]) -> None:
        self._listed = listed
        self.typed = ""
        """What the list was narrowed down with."""
        self._place = 0

    def matching(self) -> list[Listed]:
        """The sessions that hold every word that was typed, in their title, first words or id."""
        words = self.typed.lower().split()
        return [one for one in self._listed if all(word in _searched(one) for word in words)]

    def chosen(self) -> Listed | None:
        """The session that is marked; None when none matches."""
        found = self.matching()
        return found[self._place] if found else None

    def move(self, by: int) -> None:
        """Mark another one; the ends are joined."""
        if found := self.matching():
            self._place = (self._place + by) % len(found)

    def narrow(self, typed: str) -> None:
        self.typed, self._place = typed, 0

    def rows(self, columns: int) -> list[tuple[bool, str]]:
        """What is to be seen, each row with whether it is marked. The marked session's id is whole in a row below."""
        found, first = self.matching(), max(0, self._place - SHOWN + 1)
        seen = [
            (place == self._place, f"{MARK if place == self._place else GAP}{_row(one, columns - len(MARK))}")
            for place, one in list(enumerate(found))[first : first + SHOWN]
        ]
        chosen = self.chosen()
        more = f" · {self._place + 1} of {len(found)}" if len(found) > SHOWN else ""
        below = "none matches" if chosen is None else f"{printable(chosen.session.id)}{more}"
        return [*seen, (False, head(below, columns)), (False, head(HELP, columns))]


async def pick_session(listed: Sequence[Listed], output: Output) -> str | None:
    """The id of the session that the person chooses; None when they leave."""
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
        return [("", f"go on with: {printable(picker.typed)}"), *marked]

    window = Window(FormattedTextControl(shown), height=Dimension(max=SHOWN + 3), dont_extend_height=True)
    return Application(
        layout=Layout(window),
        key_bindings=_keys(picker),
        # Of its own: the prompt, which waits below, may still take an Esc out of the one that it had.
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
    """When it was last active, how many messages it has, and what it is called."""
    before = f"{show_time(one.last_active)}  {one.session.message_count:>4}  "
    return f"{before}{head(printable(one.session.title or one.preview), max(8, columns - columns_of(before)))}"
