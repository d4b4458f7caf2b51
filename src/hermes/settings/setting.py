"""Settings, tables of settings, and suggestions for mistyped keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from hermes.errors import SettingsError
from hermes.settings.kinds import Kind, RefusedValue

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Setting(Generic[T_co]):
    """One row of a table: a setting in config.yaml, or of a memory plugin in its own file."""

    key: str
    kind: Kind[T_co]
    default: T_co
    help: str
    env: str | None = None
    """The environment variable of the setting."""
    env_wins: bool = False
    """True if that variable overrides the file; otherwise it applies only where the file has no value."""
    also: tuple[str, ...] = ()
    """Alternative keys. They are read if `key` is not given, and never written."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return every key it is read from, the most important first."""
        return (self.key, *self.also)

    @property
    def secret(self) -> bool:
        return self.kind.secret

    @property
    def allowed(self) -> str:
        """Return the accepted values, in words."""
        return self.kind.describe()

    def parse(self, raw: object, where: str, key: str = "") -> T_co:
        """Return the value that `raw` stands for. Raises SettingsError with `where`, the key, the value and what is
        allowed."""
        try:
            return self.kind.parse(raw)
        except RefusedValue as refused:
            name = (key or self.key) + "".join(refused.path)
            raise SettingsError(f"{where}: {name} is {refused.shown}, but takes {refused.allowed}") from None

    def shown(self, value: Any) -> Any:
        return self.kind.show(value)


Table: TypeAlias = Sequence[Setting[Any]]


def collect(namespace: Mapping[str, object]) -> Table:
    """Return the settings of a module or class (`vars(…)`), in the order of their definition."""
    return tuple(found for found in namespace.values() if isinstance(found, Setting))


def nearest(key: str, known: Iterable[str]) -> str | None:
    """Return the key that is one letter away, or has the same words in another order; None unless there is exactly
    one."""
    close = [other for other in known if _is_one_letter_away(key, other) or _words(key) == _words(other)]
    return close[0] if len(close) == 1 else None


def _words(key: str) -> list[str]:
    return sorted(re.split(r"[._-]", key.lower()))


def _is_one_letter_away(one: str, other: str) -> bool:
    """Return True if the texts differ by one letter more, less or different, or by two adjacent letters swapped."""
    shorter, longer = sorted((one.lower(), other.lower()), key=len)
    same = next((place for place, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b), len(shorter))
    if len(longer) > len(shorter):
        return shorter[same:] == longer[same + 1 :]
    swapped = shorter[same + 1 : same + 2] + shorter[same : same + 1] + shorter[same + 2 :]
    return shorter[same + 1 :] == longer[same + 1 :] or swapped == longer[same:]
