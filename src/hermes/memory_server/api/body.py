"""The base class of request bodies. Unknown fields are ignored, unless they look like misspelt known fields."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from pydantic import AliasChoices, BaseModel, model_validator

MAX_CHECKED_UNKNOWN_FIELDS = 100
"""Unknown fields that are checked for misspelling: nobody misspells more, and a huge body must not cost more."""
MIN_MISSPELT_CHARS = 4
"""Shortest field name for which one differing letter counts as a misspelling."""


class Body(BaseModel):
    """A request body, or a part of one."""

    @model_validator(mode="before")
    @classmethod
    def refuse_mistakes(cls, given: Any) -> Any:
        """Refuse misspelt field names, and a field that is given twice with different values."""
        if not isinstance(given, dict) or given.keys() <= cls.model_fields.keys():
            return given
        spellings = _spellings(cls)
        unknown = [name for name in given if name not in spellings]
        for name in unknown[:MAX_CHECKED_UNKNOWN_FIELDS]:
            if (meant := _find_meant(str(name), spellings)) is not None:
                raise ValueError(f"Unknown field '{name[:80]}': did you mean '{meant}'?")
        said: dict[str, Any] = {}
        for name in (name for name in spellings if name in given):
            if said.setdefault(spellings[name], given[name]) != given[name]:
                raise ValueError(f"'{spellings[name]}' is given twice, under two names")
        return given


@lru_cache(maxsize=64)
def _spellings(kind: type[BaseModel]) -> dict[str, str]:
    """Return every accepted name of every field, with the name that errors show."""
    found: dict[str, str] = {}
    for name, field in kind.model_fields.items():
        alias = field.validation_alias
        names = [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [name]
        found |= dict.fromkeys(names, names[0])
    return found


def _find_meant(name: str, spellings: Iterable[str]) -> str | None:
    """Return the known field that a name misspells, else None."""
    plain = _plain(name)
    for known in spellings:
        wanted = _plain(known)
        if plain == wanted or (len(wanted) >= MIN_MISSPELT_CHARS and _is_one_letter_off(plain, wanted)):
            return known
    return None


def _plain(name: str) -> str:
    """Normalize the naming style: `sessionId`, `session-id` and `session_name` become equal."""
    flat = "".join(letter for letter in name[:80].lower() if letter.isalnum())
    return flat.removesuffix("name") + "id" if flat.endswith("name") and flat != "name" else flat


def _is_one_letter_off(one: str, other: str) -> bool:
    """Return True if the names differ by one letter: replaced, added, missing, or two swapped."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    left, right = one[start:], other[start:]
    swapped = left[:2] == right[:2][::-1] and left[2:] == right[2:]
    return swapped or left[1:] == right[1:] or left[1:] == right or left == right[1:]
