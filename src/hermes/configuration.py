"""config.yaml and the environment together: the settings in force, what is wrong with them, and what is not ours.

    variables of our own  >  config.yaml  >  variables that other programs share (OPENAI_API_KEY)  >  defaults

Another program may keep its settings in the same file. They are named and never touched; only a wrong value of a
setting of ours is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from hermes.config_file import load_env, read_entries
from hermes.errors import SettingsError
from hermes.home import Home
from hermes.redaction import HIDDEN, hide_passwords
from hermes.settings import TABLE, Setting, Settings
from hermes.settings.layers import Given, Layer, check, environment, try_resolve
from hermes.settings.setting import Table, nearest

AGREEING: Mapping[str, Sequence[object]] = {"model.provider": ("custom", "auto")}
"""Keys of a stock Hermes that are no settings here, with values that say what is done here anyway."""

MOST_NAMED = 200
"""How many keys that are not ours a list of them has."""


class ForeignSetting(Struct, frozen=True):
    """A key of config.yaml that is not ours, or a whole block of them; `meant` is a key of ours that is very close."""

    key: str
    where: str
    meant: str | None = None

    def __str__(self) -> str:
        return f"{self.key} (did you mean {self.meant}?)" if self.meant else self.key


class Configuration(Struct, frozen=True):
    """What a profile is told. Where a value is wrong, `settings` has the default; that is for looking, not running."""

    settings: Settings
    problems: Sequence[SettingsError]
    foreign: Sequence[ForeignSetting]

    def checked(self) -> Settings:
        """The settings, for running. Raises the first problem, and says how many more there are."""
        check(self.problems)
        return self.settings


def read_configuration(home: Home, table: Table = TABLE) -> Configuration:
    """What a profile is told by its config.yaml and the environment. Raises SettingsError for a file that cannot be
    read."""
    return configure(read_entries(home.config_file), load_env(home), table)


def configure(entries: Iterable[Given], env: Mapping[str, str], table: Table = TABLE) -> Configuration:
    """What the entries of config.yaml and the environment say together. Raises nothing."""
    known = {key for setting in table for key in setting.keys}
    entries = list(entries)
    ours, others = [entry for entry in entries if entry.key in known], [e for e in entries if e.key not in known]
    layers = [  # the most important first
        environment((setting for setting in table if setting.env_wins), env),
        Layer("file", {entry.key: entry for entry in ours}),
        environment((setting for setting in table if not setting.env_wins), env),
    ]
    settings, wrong = try_resolve(table, layers)
    return Configuration(
        settings,
        [*_misplaced(others, table), *_repeated(ours), *wrong],
        sorted(_foreign(others, table), key=lambda one: (one.meant is None, one.key)),
    )


def name_foreign(foreign: Sequence[ForeignSetting], most: int) -> str:
    """One line about the keys that are not ours, naming `most` of them."""
    count = "1 setting is" if len(foreign) == 1 else f"{len(foreign)} settings are"
    names = ", ".join(str(one) for one in foreign[:most])
    if (more := len(foreign) - most) > 0:
        return f"{count} not ours: {names} and {more} more (kept; `hermes config list` names them)"
    return f"{count} not ours: {names} (kept)"


def _repeated(entries: Iterable[Given]) -> Iterator[SettingsError]:
    first: dict[str, Given] = {}
    for entry in entries:
        if (before := first.setdefault(entry.key, entry)) is not entry:
            message = f"{entry.where}: {entry.key} stands there a second time (first: {before.where})"
            yield SettingsError(message, hint="Take one of the two out of the file")


def _misplaced(others: Iterable[Given], table: Table) -> Iterator[SettingsError]:
    """Values in the place of a block of ours; a block that was left empty is fine."""
    for entry in others:
        if entry.value is not None and (inside := _inside(entry.key, table)):
            shown = HIDDEN if any(setting.secret for setting in inside) else hide_passwords(repr(entry.value))
            names = ", ".join(setting.key for setting in inside)
            yield SettingsError(f"{entry.where}: '{entry.key}' is {shown}, but takes a block of settings ({names})")


def _foreign(others: Iterable[Given], table: Table) -> Iterator[ForeignSetting]:
    """What is not ours, a block without a setting of ours as one."""
    told: set[str] = set()
    for entry in others:
        if _inside(entry.key, table) or entry.value in AGREEING.get(entry.key, ()):
            continue
        meant = nearest(entry.key, [setting.key for setting in table])
        key = entry.key if meant else _outermost(entry.key, table)
        if key not in told:
            told.add(key)
            yield ForeignSetting(key, entry.where, meant)


def _outermost(key: str, table: Table) -> str:
    """The block furthest out around `key` that has no setting of ours, or the key itself."""
    steps = key.split(".")
    blocks = (".".join(steps[:length]) for length in range(1, len(steps)))
    return next((block for block in blocks if not _inside(block, table)), key)


def _inside(block: str, table: Table) -> list[Setting[Any]]:
    """The settings of a block."""
    return [setting for setting in table if any(key.startswith(f"{block}.") for key in setting.keys)]
