"""Validation of every text and JSON value in a request.

The base class of request bodies. Unknown fields are ignored, unless they look like misspelt known fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    FailFast,
    Field,
    StringConstraints,
    model_validator,
)

from hermes.memory_server import limits
from hermes.memory_server.ids import NAME
from hermes.memory_server.tokens import count_tokens

MAX_JSON_DEPTH = 64


def clean_text(text: str) -> str:
    """Remove NUL, which not every database stores. Raise ValueError for text that is not valid UTF-8."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("text contains an unpaired surrogate")
    return text.replace("\0", "") if "\0" in text else text


def drop_nul(value: Any) -> Any:
    """Remove NUL from a text, before its length is checked."""
    return value.replace("\0", "") if isinstance(value, str) else value


def clean_json(value: Any, depth: int = 0) -> Any:
    """Apply `clean_text` at every depth. Raise ValueError for values that JSON or the database cannot store."""
    if isinstance(value, str):
        return clean_text(value)
    if depth > MAX_JSON_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        return {clean_json(key): clean_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_json(item, depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("numbers must be finite")
    if isinstance(value, int) and abs(value) > limits.MAX_INTEGER:
        raise ValueError("integers must fit into 64 bits")
    return value


def check_size(value: Any, most: int, name: str) -> None:
    """Raise ValueError if the value as JSON is longer than `most` characters."""
    if len(json.dumps(value)) > most:
        raise ValueError(f"{name} exceeds maximum of {most} characters")


def clean_metadata(value: dict[str, Any]) -> dict[str, Any]:
    if len(value) > limits.MAX_METADATA_KEYS:
        raise ValueError(f"Metadata exceeds maximum of {limits.MAX_METADATA_KEYS} top-level keys")
    if _depth(value) > limits.METADATA_DEPTH:
        raise ValueError(f"Metadata nesting exceeds maximum depth of {limits.METADATA_DEPTH}")
    cleaned: dict[str, Any] = clean_json(value)
    check_size(cleaned, limits.METADATA_CHARS, "Metadata")
    return cleaned


def check_members(value: Any) -> Any:
    """Refuse a list with many invalid members at once, instead of reporting thousands of errors."""
    if isinstance(value, dict):
        if len(value) > limits.MAX_MEMBERS:
            raise ValueError(f"At most {limits.MAX_MEMBERS} members can be named at once")
        bad = sum(not (isinstance(name, str) and len(name) <= limits.NAME_CHARS and NAME.match(name)) for name in value)
        bad += sum(not isinstance(given, dict) for given in value.values())
        if bad > limits.MAX_PROBLEMS:
            raise ValueError(f"{bad} of the members are invalid")
    return value


def _depth(value: Any) -> int:
    deepest = 0
    layer = [value]
    while layer and deepest <= limits.METADATA_DEPTH:
        inside = [item for item in layer if isinstance(item, (dict, list))]
        if not inside:
            break
        deepest += 1
        layer = [child for item in inside for child in (item.values() if isinstance(item, dict) else item)]
    return deepest


def check_instructions(text: str) -> str:
    if count_tokens(text) > limits.INSTRUCTION_TOKENS:
        raise ValueError(f"Custom instructions exceed maximum of {limits.INSTRUCTION_TOKENS} tokens")
    return text


Name = Annotated[str, StringConstraints(min_length=1, max_length=limits.NAME_CHARS, pattern=limits.NAME_PATTERN)]
ScopeName = Annotated[
    str, StringConstraints(min_length=1, max_length=limits.SCOPE_NAME_CHARS, pattern=limits.NAME_PATTERN)
]
CleanText = Annotated[str, Field(max_length=limits.TEXT_CHARS), AfterValidator(clean_text)]
MessageText = Annotated[
    str, Field(max_length=limits.MESSAGE_CHARS), BeforeValidator(drop_nul), AfterValidator(clean_text)
]
ConclusionText = Annotated[
    str, Field(min_length=1, max_length=limits.CONCLUSION_CHARS), BeforeValidator(drop_nul), AfterValidator(clean_text)
]
QuestionText = Annotated[
    str, Field(min_length=1, max_length=limits.QUERY_CHARS), BeforeValidator(drop_nul), AfterValidator(clean_text)
]
SearchText = Annotated[
    str,
    Field(max_length=limits.SEARCH_CHARS),
    AfterValidator(clean_text),
    AfterValidator(lambda text: text[: limits.TEXT_CHARS] if text.strip() else ""),
]
"""A search query: a long text is truncated, and a blank one becomes empty."""
TextList = Annotated[list[CleanText], FailFast(), Field(max_length=limits.MAX_MEMBERS)]
Metadata = Annotated[dict[str, Any], AfterValidator(clean_metadata)]
Filters = Annotated[dict[str, Any], AfterValidator(clean_json)]
Instructions = Annotated[
    str, Field(max_length=limits.INSTRUCTION_CHARS), AfterValidator(clean_text), AfterValidator(check_instructions)
]


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
