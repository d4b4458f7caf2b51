"""What a setting's value may be. A kind is a value: it parses, says what it takes, and shows without secrets.

    Text  Secret  Url  Choice  Boolean  Integer  Number      here
    List  Map  Fields  Either  optional                      made of others, in `compound_kinds`

Every kind also reads text, since a variable and a command line have nothing else: `a, b` for a list, JSON for a map.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from hermes.redaction import HIDDEN, hide_passwords, hide_url

T_co = TypeVar("T_co", covariant=True)
N = TypeVar("N", int, float)

LONGEST_TEXT = 10_000
LONGEST_QUOTE = 120
TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
FALSE_WORDS = frozenset({"false", "no", "off", "0"})


class RefusedValue(Exception):
    """A kind does not take a value. `path` leads from the setting to what is wrong: `.user`, ` item 2`."""

    def __init__(self, shown: str, allowed: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(f"{''.join(path)} is {shown}, but takes {allowed}")
        self.shown = shown
        self.allowed = allowed
        self.path = path

    def inside(self, step: str) -> RefusedValue:
        """The same, seen from one level further out."""
        return RefusedValue(self.shown, self.allowed, (step, *self.path))


class Kind(ABC, Generic[T_co]):
    """One kind of values. `parse` raises `RefusedValue`; what it returned once it takes again and returns unchanged."""

    @property
    def secret(self) -> bool:
        """Whether a value may hold what nobody should see."""
        return False

    @abstractmethod
    def parse(self, raw: object) -> T_co:
        """The value that `raw` means."""

    @abstractmethod
    def describe(self) -> str:
        """What is allowed, in words that follow "takes"."""

    def show(self, value: Any) -> Any:
        """A value of this kind as a person may see it, in lists and maps that JSON has too."""
        return value

    def quote(self, raw: object) -> str:
        """What someone wrote, right or wrong, as an error may repeat it."""
        if self.secret:
            return HIDDEN
        text = hide_passwords(repr(plain(raw)))
        return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"

    def refusal(self, raw: object, allowed: str = "") -> RefusedValue:
        """What `parse` raises for `raw`."""
        return RefusedValue(self.quote(raw), allowed or self.describe())


@dataclass(frozen=True, slots=True)
class Text(Kind[str]):
    """Any text. `spellings` are words that mean another one."""

    spellings: Mapping[str, str] = field(default_factory=dict)

    def parse(self, raw: object) -> str:
        if isinstance(raw, bool) or not isinstance(raw, str | int | float):
            raise self.refusal(raw)
        text = str(raw)
        if len(text) > LONGEST_TEXT:
            raise self.refusal(text, f"{self.describe()} of at most {LONGEST_TEXT:,} characters")
        return self.spellings.get(text, text)

    def describe(self) -> str:
        return "text"


@dataclass(frozen=True, slots=True)
class Secret(Text):
    """Text that nobody should see."""

    @property
    def secret(self) -> bool:
        return True

    def show(self, value: Any) -> Any:
        return HIDDEN if value else value


@dataclass(frozen=True, slots=True)
class Url(Kind[str]):
    """Where something is on the web. It may hold a password, which is not shown. Empty means nowhere."""

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str) or len(raw) > LONGEST_TEXT:
            raise self.refusal(raw)
        url = raw.strip()
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if url and (not usable or any(character.isspace() for character in url)):
            raise self.refusal(raw)
        return url

    def describe(self) -> str:
        return "an http:// or https:// URL, or nothing"

    def show(self, value: Any) -> Any:
        return hide_url(value)

    def quote(self, raw: object) -> str:
        return Kind.quote(self, hide_url(raw) if isinstance(raw, str) else raw)


@dataclass(frozen=True, slots=True)
class Choice(Kind[str]):
    """One of a few words. `spellings` are further words that mean one of them."""

    words: tuple[str, ...]
    spellings: Mapping[str, str] = field(default_factory=dict)

    def parse(self, raw: object) -> str:
        word = str(raw).lower() if isinstance(raw, bool) else raw  # YAML takes `on` for true
        word = self.spellings.get(word, word) if isinstance(word, str) else word
        if not isinstance(word, str) or word not in self.words:
            raise self.refusal(raw)
        return word

    def describe(self) -> str:
        return "one of " + ", ".join(self.words)


@dataclass(frozen=True, slots=True)
class Boolean(Kind[bool]):
    def parse(self, raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        word = str(raw).strip().lower() if isinstance(raw, str) or raw in (0, 1) else ""
        if word not in TRUE_WORDS | FALSE_WORDS:
            raise self.refusal(raw)
        return word in TRUE_WORDS

    def describe(self) -> str:
        return "true or false"


@dataclass(frozen=True, slots=True)
class Number(Kind[float]):
    minimum: float | None = None
    maximum: float | None = None

    def parse(self, raw: object) -> float:
        number = _to_float(raw)
        if number is None or number != _clamp(number, self.minimum, self.maximum):
            raise self.refusal(raw)
        return number

    def describe(self) -> str:
        return "a number" + _bounds(self.minimum, self.maximum)


@dataclass(frozen=True, slots=True)
class Integer(Kind[int]):
    """A whole number within bounds. Where it is `clamped`, one outside means the nearest bound."""

    minimum: int | None = None
    maximum: int | None = None
    clamped: bool = False

    def parse(self, raw: object) -> int:
        number = _to_float(raw)
        if number is None or not number.is_integer():
            raise self.refusal(raw)
        whole = _to_whole(raw, number)
        nearest = _clamp(whole, self.minimum, self.maximum)
        if nearest != whole and not self.clamped:
            raise self.refusal(raw)
        return nearest

    def describe(self) -> str:
        held = " (what is beyond is brought there)" if self.clamped else ""
        return "a whole number" + _bounds(self.minimum, self.maximum) + held


def plain(value: object) -> Any:
    """Tuples and mappings of any make as lists and dicts, for YAML, JSON and error texts."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def in_words(value: object) -> str:
    """A shown value as one line of text that `parse` understands."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(in_words(item) for item in value)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return "none" if value is None else str(value)


def _to_float(raw: object) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return None
    try:
        number = float(raw)
    except (ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def _to_whole(raw: object, number: float) -> int:
    """All the digits, which a float has no room for."""
    try:
        return int(raw) if isinstance(raw, int | str) else int(number)
    except ValueError:  # "5.0"
        return int(number)


def _clamp(number: N, minimum: N | None, maximum: N | None) -> N:
    above = number if minimum is None else max(number, minimum)
    return above if maximum is None else min(above, maximum)


def _bounds(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f" from {minimum:g} to {maximum:g}"
    if minimum is not None:
        return f" of at least {minimum:g}"
    return "" if maximum is None else f" of at most {maximum:g}"
