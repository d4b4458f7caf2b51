"""Kinds of setting values. A kind parses a value, describes what it accepts, and shows values without secrets.

    Text  Secret  Url  Choice  Boolean  Integer  Number      here
    List  Map  Fields  Either  optional                      made of others, in `compound_kinds`

Every kind also reads text, for variables and command lines: `a, b` for a list, JSON for a map.
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

MAX_TEXT_CHARS = 10_000
MAX_QUOTE_CHARS = 120
TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
FALSE_WORDS = frozenset({"false", "no", "off", "0"})


class RefusedValue(Exception):
    """A kind refuses a value. `path` leads from the setting to the problem: `.user`, ` item 2`."""

    def __init__(self, shown: str, allowed: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(f"{''.join(path)} is {shown}, but takes {allowed}")
        self.shown = shown
        self.allowed = allowed
        self.path = path

    def inside(self, step: str) -> RefusedValue:
        """Return the same error with one more outer step in its path."""
        return RefusedValue(self.shown, self.allowed, (step, *self.path))


class Kind(ABC, Generic[T_co]):
    """One kind of values. `parse` raises `RefusedValue`; it returns its own results unchanged."""

    @property
    def secret(self) -> bool:
        """True if a value may contain a secret."""
        return False

    @abstractmethod
    def parse(self, raw: object) -> T_co:
        """Return the value that `raw` stands for."""

    @abstractmethod
    def describe(self) -> str:
        """Return the accepted values, in words that follow "takes"."""

    def show(self, value: Any) -> Any:
        """Return a value in a form that is safe to show, with JSON's lists and maps."""
        return value

    def quote(self, raw: object) -> str:
        """Return a given value, right or wrong, as error texts may quote it."""
        if self.secret:
            return HIDDEN
        text = hide_passwords(repr(plain(raw)))
        return text if len(text) <= MAX_QUOTE_CHARS else f"{text[:MAX_QUOTE_CHARS]}…"

    def refusal(self, raw: object, allowed: str = "") -> RefusedValue:
        """Return the error that `parse` raises for `raw`."""
        return RefusedValue(self.quote(raw), allowed or self.describe())


@dataclass(frozen=True, slots=True)
class Text(Kind[str]):
    """Any text. `spellings` maps alternative spellings to the text they mean."""

    spellings: Mapping[str, str] = field(default_factory=dict)

    def parse(self, raw: object) -> str:
        if isinstance(raw, bool) or not isinstance(raw, str | int | float):
            raise self.refusal(raw)
        text = str(raw)
        if len(text) > MAX_TEXT_CHARS:
            raise self.refusal(text, f"{self.describe()} of at most {MAX_TEXT_CHARS:,} characters")
        return self.spellings.get(text, text)

    def describe(self) -> str:
        return "text"


@dataclass(frozen=True, slots=True)
class Secret(Text):
    """Text that must stay secret."""

    @property
    def secret(self) -> bool:
        return True

    def show(self, value: Any) -> Any:
        return HIDDEN if value else value


@dataclass(frozen=True, slots=True)
class Url(Kind[str]):
    """A web URL, or "" for none. A password in it is not shown."""

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str) or len(raw) > MAX_TEXT_CHARS:
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
    """One of a few words. `spellings` maps further words to one of them."""

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
    """A whole number within bounds. If `clamped`, a number outside becomes the nearest bound."""

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
    """Return tuples and mappings of any type as lists and dicts, for YAML, JSON and error texts."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def in_words(value: object) -> str:
    """Return a shown value as one line of text that `parse` accepts."""
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
    """Return all digits of a whole number, which a float might not hold."""
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
