"""The answers of a set-up: from command line options, from a person, or the values in force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from hermes.errors import SettingsError
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.keys import Key
from hermes.memory.provider import Dialog
from hermes.settings.kinds import in_words, plain

T = TypeVar("T")
GIVEN = "the command line"
TYPED, DEFAULT_TURNS = "every", "5"
"""The option for a number of turns, and the number offered as its default."""


class Interview:
    """Collects answers. `wanted` holds the values to write: those that differ from the values in force."""

    def __init__(
        self, dialog: Dialog, config: HonchoConfiguration, options: Mapping[str, str | None], *, asks: bool
    ) -> None:
        self.dialog = dialog
        self.config = config
        self.asks = asks
        self.wanted: dict[str, Any] = {}
        self._options = options
        self._warned: set[str] = set()

    def value(self, row: Key[T]) -> T:
        """Return the wanted value, else the value in force."""
        value: T = self.wanted.get(row.key, self.config.get(row))
        return value

    def put(self, row: Key[Any], value: object) -> None:
        """Add a value to `wanted`, unless it is in force. Raises SettingsError for an invalid value."""
        parsed = row.parse(value, GIVEN)
        if (warning := row.counted_as(value)) is not None and warning not in self._warned:
            self._warned.add(warning)
            self.dialog.say(f"Note: {warning}.")
        if plain(parsed) == plain(self.config.get(row)):
            self.wanted.pop(row.key, None)
        else:
            self.wanted[row.key] = parsed

    def reopen(self, rows: Iterable[Key[Any]], names: Iterable[str]) -> None:
        """Discard the answers for `rows` and the options `names`, so that they are asked again."""
        for row in rows:
            self.wanted.pop(row.key, None)
        self._options = {name: given for name, given in self._options.items() if name not in set(names)}

    def option(self, name: str) -> str | None:
        return self._options.get(name)

    def text(self, row: Key[Any], question: str, name: str, default: str | None = None) -> None:
        """Take a text or number from the option, or ask for it."""
        if (given := self.option(name)) is not None:
            self.put(row, given)
            return
        standing = in_words(row.shown(self.value(row))) if default is None else default
        if self.asks:  # what stands is not written, also where it is only what follows from other keys
            self.ask(row, question, standing, None if row.key in self.wanted else standing)

    def ask(self, row: Key[Any], question: str, offered: str = "", stands: str | None = None) -> None:
        """Prompt until the answer is valid or equals `stands`, the current value."""
        while (answer := self.dialog.ask(question, offered, secret=row.secret)) != stands:
            try:
                self.put(row, answer)
                return
            except SettingsError as error:
                self.dialog.say(error.message.removeprefix(f"{GIVEN}: "))

    def choice(self, row: Key[Any], question: str, name: str, options: Mapping[str, str]) -> None:
        """Take one of a few words from the option, or ask; the choice `TYPED` asks for a number."""
        if (given := self.option(name)) is not None:
            self.put(row, given)
        elif self.asks:
            standing = str(self.value(row))
            is_word = standing in options
            answer = self.dialog.choose(question, options, standing if is_word else TYPED)
            if answer == TYPED:
                self.ask(row, "How many turns", DEFAULT_TURNS if is_word else standing)
            else:
                self.put(row, answer)
