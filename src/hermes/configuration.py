"""config.yaml and the environment together: the settings in force, their errors, and keys that are not ours.

    our variables  >  config.yaml  >  variables that other programs share (OPENAI_API_KEY)  >  defaults

Another program may keep its settings in the same file. Those are listed and never changed; only a wrong value of one of
our settings is an error.
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

AGREEING_VALUES: Mapping[str, Sequence[object]] = {"model.provider": ("custom", "auto")}
"""Keys of a stock Hermes without a counterpart here, with the values that match our behaviour anyway."""

MAX_LISTED_KEYS = 200
"""Maximum number of foreign keys that are listed."""


class ForeignSetting(Struct, frozen=True):
    """A key of config.yaml that is not ours, or a whole block of them; `meant` is a very similar key of ours."""

    key: str
    where: str
    meant: str | None = None

    def __str__(self) -> str:
        return f"{self.key} (did you mean {self.meant}?)" if self.meant else self.key


class Configuration(Struct, frozen=True):
    """The settings of a profile with their problems. `settings` has defaults for wrong values: use it to inspect, not
    to run."""

    settings: Settings
    problems: Sequence[SettingsError]
    foreign: Sequence[ForeignSetting]

    def checked(self) -> Settings:
        """Return the settings to run with. Raises the first problem, with the number of further ones."""
        check(self.problems)
        return self.settings


def read_configuration(home: Home, table: Table = TABLE) -> Configuration:
    """Read a profile's config.yaml and the environment. Raises SettingsError for an unreadable file."""
    return configure(read_entries(home.config_file), load_env(home), table)


def configure(entries: Iterable[Given], env: Mapping[str, str], table: Table = TABLE) -> Configuration:
    """Combine the entries of config.yaml with the environment. Never raises."""
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
    """Return one line about the foreign keys, with the names of the first `most`."""
    count = "1 setting is" if len(foreign) == 1 else f"{len(foreign)} settings are"
    names = ", ".join(str(one) for one in foreign[:most])
    if (more := len(foreign) - most) > 0:
        return f"{count} not ours: {names} and {more} more (kept; `hermes config list` names them)"
    return f"{count} not ours: {names} (kept)"


def _repeated(entries: Iterable[Given]) -> Iterator[SettingsError]:
    first: dict[str, Given] = {}
    for entry in entries:
        if (before := first.setdefault(entry.key, entry)) is not entry:
            message = f"{entry.where}: {entry.key} is set a second time (first: {before.where})"
            yield SettingsError(message, hint="Remove one of the two from the file")


def _misplaced(others: Iterable[Given], table: Table) -> Iterator[SettingsError]:
    """Yield an error for each single value in place of one of our blocks. An empty block is fine."""
    for entry in others:
        if entry.value is not None and (inside := _inside(entry.key, table)):
            shown = HIDDEN if any(setting.secret for setting in inside) else hide_passwords(repr(entry.value))
            names = ", ".join(setting.key for setting in inside)
            yield SettingsError(f"{entry.where}: '{entry.key}' is {shown}, but takes a block of settings ({names})")


def _foreign(others: Iterable[Given], table: Table) -> Iterator[ForeignSetting]:
    """Yield the foreign keys; a block without a setting of ours counts as one."""
    listed: set[str] = set()
    for entry in others:
        if _inside(entry.key, table) or entry.value in AGREEING_VALUES.get(entry.key, ()):
            continue
        meant = nearest(entry.key, [setting.key for setting in table])
        key = entry.key if meant else _outermost(entry.key, table)
        if key not in listed:
            listed.add(key)
            yield ForeignSetting(key, entry.where, meant)


def _outermost(key: str, table: Table) -> str:
    """Return the outermost block around `key` without a setting of ours, or the key itself."""
    steps = key.split(".")
    blocks = (".".join(steps[:length]) for length in range(1, len(steps)))
    return next((block for block in blocks if not _inside(block, table)), key)


def _inside(block: str, table: Table) -> list[Setting[Any]]:
    """Return the settings of a block."""
    return [setting for setting in table if any(key.startswith(f"{block}.") for key in setting.keys)]
