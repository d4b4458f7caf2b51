"""The answers of a set-up: from options of the command line, from a person, or as it is."""

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
TYPED, FEW = "every", "5"
"""The word for a number of turns, and the number that is offered."""


class Interview:
    """`wanted` has what differs from what is in force, by key: all that is to be written."""

    def __init__(
        self, dialog: Dialog, config: HonchoConfiguration, options: Mapping[str, str | None], *, asks: bool
    ) -> None:
        self.dialog = dialog
        self.config = config
        self.asks = asks
        self.wanted: dict[str, Any] = {}
        self._options = options
        self._told: set[str] = set()

    def value(self, row: Key[T]) -> T:
        """What is wanted, or in force."""
        value: T = self.wanted.get(row.key, self.config.get(row))
        return value

    def put(self, row: Key[Any], value: object) -> None:
        """Want a value. What is in force already is not written. Raises SettingsError when it is wrong."""
        parsed = row.parse(value, GIVEN)
        if (told := row.counted_as(value)) is not None and told not in self._told:
            self._told.add(told)
            self.dialog.say(f"Note: {told}.")
        if plain(parsed) == plain(self.config.get(row)):
            self.wanted.pop(row.key, None)
        else:
            self.wanted[row.key] = parsed

    def reopen(self, rows: Iterable[Key[Any]], names: Iterable[str]) -> None:
        """Take back what was answered to these, and what the command line said, so that they can be asked anew."""
        for row in rows:
            self.wanted.pop(row.key, None)
        self._options = {name: given for name, given in self._options.items() if name not in set(names)}

    def option(self, name: str) -> str | None:
        return self._options.get(name)

    def text(self, row: Key[Any], question: str, name: str, default: str | None = None) -> None:
        """A text or a number; it is asked for again until it can be used."""
        if (given := self.option(name)) is not None:
            self.put(row, given)
            return
        standing = in_words(row.shown(self.value(row))) if default is None else default
        if self.asks:  # what stands is not written, also where it is only what follows from other keys
            self.ask(row, question, standing, None if row.key in self.wanted else standing)

    def ask(self, row: Key[Any], question: str, offered: str = "", stands: str | None = None) -> None:
        """Ask until the answer can be used, or is what stands."""
        while (answer := self.dialog.ask(question, offered, secret=row.secret)) != stands:
            try:
                self.put(row, answer)
                return
            except SettingsError as error:
                self.dialog.say(error.message.removeprefix(f"{GIVEN}: "))

    def choice(self, row: Key[Any], question: str, name: str, options: Mapping[str, str]) -> None:
        """One of a few words; behind `TYPED` a number is asked for."""
        if (given := self.option(name)) is not None:
            self.put(row, given)
        elif self.asks:
            standing = str(self.value(row))
            is_word = standing in options
            answer = self.dialog.choose(question, options, standing if is_word else TYPED)
            if answer == TYPED:
                self.ask(row, "How many turns", FEW if is_word else standing)
            else:
                self.put(row, answer)
