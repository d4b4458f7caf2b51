"""config.yaml and the environment together: the settings in force, and everything that is wrong with them.

variables of our own  >  config.yaml  >  variables that other programs share (OPENAI_API_KEY)  >  defaults
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hermes.errors import SettingsError
from hermes.redaction import HIDDEN, hide_passwords
from hermes.settings import TABLE, Settings
from hermes.settings.layers import Given, Layer, check, environment, try_resolve
from hermes.settings.setting import Table
from hermes.settings.spelling import nearest


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a profile is told. Where a value is wrong, `settings` has the default; that is for looking, not running."""

    settings: Settings
    problems: Sequence[SettingsError]

    def checked(self) -> Settings:
        """The settings, for running. Raises the first problem, and says how many more there are."""
        check(self.problems)
        return self.settings


def configure(entries: Iterable[Given], env: Mapping[str, str], table: Table = TABLE) -> Configuration:
    """What the entries of config.yaml and the environment say together. Raises nothing."""
    entries = list(entries)
    settings, wrong = try_resolve(table, config_layers(entries, env, table))
    return Configuration(settings, [*_misplaced(entries, table), *_repeated(entries), *wrong])


def config_layers(entries: Iterable[Given], env: Mapping[str, str], table: Table = TABLE) -> list[Layer]:
    """The layers of a profile, the most important first."""
    return [
        environment((setting for setting in table if setting.env_wins), env),
        Layer("file", {entry.key: entry for entry in entries}),
        environment((setting for setting in table if not setting.env_wins), env),
    ]


def _repeated(entries: Iterable[Given]) -> Iterator[SettingsError]:
    first: dict[str, Given] = {}
    for entry in entries:
        if (before := first.setdefault(entry.key, entry)) is not entry:
            message = f"{entry.where}: {entry.key} stands there a second time (first: {before.where})"
            yield SettingsError(message, hint="Take one of the two out of the file")


def _misplaced(entries: Iterable[Given], table: Table) -> Iterator[SettingsError]:
    """Names that are no setting, and values in the place of a block; a block that was left empty is neither."""
    known = {key for setting in table for key in setting.keys}
    for entry in entries:
        if entry.key in known:
            continue
        inside = [setting for setting in table if setting.key.startswith(f"{entry.key}.")]
        if not inside:
            meant = nearest(entry.key, [setting.key for setting in table])
            suggestion = f" (did you mean {meant}?)" if meant else ""
            yield SettingsError(f"{entry.where}: unknown setting '{entry.key}'{suggestion}")
        elif entry.value is not None:
            shown = HIDDEN if any(setting.secret for setting in inside) else hide_passwords(repr(entry.value))
            names = ", ".join(setting.key for setting in inside)
            yield SettingsError(f"{entry.where}: '{entry.key}' is {shown}, but takes a block of settings ({names})")
