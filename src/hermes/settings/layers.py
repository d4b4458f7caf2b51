"""Layers of given values, the most important first, with the defaults below them.

try_resolve(table, [Layer("environment", …), Layer("file", …)]) ──> Settings ──get(SETTING)──> a value of its kind
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hermes.errors import SettingsError
from hermes.settings.compound_kinds import takes_nothing
from hermes.settings.setting import Setting, Table

T = TypeVar("T")
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and its location for error texts: `config.yaml, line 7`."""

    key: str
    value: object
    where: str


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of values, by key."""

    name: str
    values: Mapping[str, Given]

    @classmethod
    def of(cls, name: str, values: Mapping[str, object], where: str) -> Layer:
        """Return the layer of a mapping from one location, such as a block of a JSON file."""
        return cls(name, {key: Given(key, value, where) for key, value in values.items()})

    def find(self, setting: Setting[Any]) -> Given | None:
        """Return this layer's value of a setting, or None. A null counts only for kinds of which none is a value."""
        for key in setting.keys:
            given = self.values.get(key)
            if given is not None and (given.value is not None or takes_nothing(setting.kind)):
                return given
        return None


def environment(table: Iterable[Setting[Any]], env: Mapping[str, str]) -> Layer:
    """Return the layer of the environment variables that these settings name. Empty variables are ignored."""
    named = ((setting.key, setting.env, env.get(setting.env)) for setting in table if setting.env)
    values = {key: Given(key, value, f"environment variable {name}") for key, name, value in named if value}
    return Layer("environment", values)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A value in force, the name of its layer, and its location in it."""

    value: Any
    origin: str
    where: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The value of every setting, with its source."""

    found: Mapping[str, Resolved]

    def get(self, setting: Setting[T]) -> T:
        """Return the value in force."""
        value: T = self.found[setting.key].value
        return value

    def origin(self, setting: Setting[Any]) -> str:
        """Return the name of the value's layer, or `default`."""
        return self.found[setting.key].origin

    def is_given(self, setting: Setting[Any]) -> bool:
        """Return True if the value was given, even if it equals the default."""
        return self.origin(setting) != DEFAULT

    def where(self, setting: Setting[Any]) -> str:
        """Return the value's location: a line of a file, a variable, or `default`."""
        return self.found[setting.key].where


def try_resolve(table: Table, layers: Sequence[Layer]) -> tuple[Settings, list[SettingsError]]:
    """Return the settings in force and every error in them; a wrong value leaves the default in force."""
    found: dict[str, Resolved] = {}
    problems: list[SettingsError] = []
    for setting in table:
        found[setting.key] = Resolved(setting.default, DEFAULT, DEFAULT)
        try:
            found[setting.key] = _resolve_one(setting, layers)
        except SettingsError as error:
            problems.append(error)
    return Settings(found), problems


def check(problems: Sequence[SettingsError]) -> None:
    """Raise the first problem, if any, with the number of further ones."""
    if problems:
        more = f" (and {len(problems) - 1} more: `hermes doctor` lists them)" if len(problems) > 1 else ""
        raise SettingsError(problems[0].message + more, hint=problems[0].hint)


def _resolve_one(setting: Setting[Any], layers: Iterable[Layer]) -> Resolved:
    for layer in layers:
        if (given := layer.find(setting)) is not None:
            return Resolved(setting.parse(given.value, given.where, given.key), layer.name, given.where)
    return Resolved(setting.default, DEFAULT, DEFAULT)
