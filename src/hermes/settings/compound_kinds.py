"""Kinds made of other kinds: lists, maps, alternatives, and none as a value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hermes.settings.kinds import Kind, RefusedValue
from hermes.settings.setting import nearest

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

MAX_ITEMS = 10_000
NONE_WORDS = frozenset({"none", "null"})


@dataclass(frozen=True, slots=True)
class List(Kind[tuple[T, ...]]):
    """Several values of one kind. As text they are separated by commas, or a JSON list."""

    item: Kind[T]

    @property
    def secret(self) -> bool:
        return self.item.secret

    def parse(self, raw: object) -> tuple[T, ...]:
        items = self._items(raw)
        if len(items) > MAX_ITEMS:
            raise self.refusal(raw, f"at most {MAX_ITEMS:,} items")
        return tuple(_parse_at(f" item {place}", self.item, item) for place, item in enumerate(items, 1))

    def _items(self, raw: object) -> Sequence[object]:
        if isinstance(raw, str) and raw.lstrip().startswith("["):
            raw = _from_json(raw)
        elif isinstance(raw, str | int | float) and not isinstance(raw, bool):
            return [word.strip() for word in str(raw).split(",") if word.strip()]
        if not isinstance(raw, list | tuple):
            raise self.refusal(raw)
        return raw

    def describe(self) -> str:
        return f"a list, each item {self.item.describe()}"

    def show(self, value: Any) -> Any:
        return [self.item.show(item) for item in value]


@dataclass(frozen=True, slots=True)
class Map(Kind[Mapping[str, T]]):
    """A map from freely chosen names to values of one kind."""

    value: Kind[T]

    @property
    def secret(self) -> bool:
        return self.value.secret

    def parse(self, raw: object) -> Mapping[str, T]:
        named = _to_mapping(raw)
        if named is None:
            raise self.refusal(raw)
        if len(named) > MAX_ITEMS:
            raise self.refusal(raw, f"at most {MAX_ITEMS:,} names")
        return {name: _parse_at(f".{name}", self.value, value) for name, value in named.items()}

    def describe(self) -> str:
        return f"a map, each value {self.value.describe()}"

    def show(self, value: Any) -> Any:
        return {name: self.value.show(inner) for name, inner in value.items()}


@dataclass(frozen=True, slots=True)
class Fields(Kind[Mapping[str, Any]]):
    """A map with known names, each with its own kind. Names may be left out."""

    fields: Mapping[str, Kind[Any]]

    @property
    def secret(self) -> bool:
        return any(kind.secret for kind in self.fields.values())

    def parse(self, raw: object) -> Mapping[str, Any]:
        named = _to_mapping(raw)
        if named is None or not named.keys() <= self.fields.keys():
            raise self.refusal(raw)
        return {name: _parse_at(f".{name}", self.fields[name], value) for name, value in named.items()}

    def describe(self) -> str:
        return "a map with any of " + ", ".join(self.fields)

    def show(self, value: Any) -> Any:
        return {name: self.fields[name].show(inner) for name, inner in value.items()}


@dataclass(frozen=True, slots=True)
class OpenFields(Fields):
    """Fields to which other programs may add names. Unknown names are ignored; `unknown` lists them."""

    def parse(self, raw: object) -> Mapping[str, Any]:
        named = _to_mapping(raw)
        known = None if named is None else {name: named[name] for name in named if name in self.fields}
        return Fields.parse(self, raw if known is None else known)

    def unknown(self, raw: object, path: str) -> Iterator[tuple[str, str | None]]:
        """Yield the path of every unknown name, beginning with `path`, and the path that was probably meant."""
        for name, value in (_to_mapping(raw) or {}).items():
            kind, inner = self.fields.get(name), f"{path}.{name}"
            if isinstance(kind, OpenFields):
                yield from kind.unknown(value, inner)
            elif kind is None:
                meant = nearest(name, self.fields)
                yield inner, None if meant is None else f"{path}.{meant}"


@dataclass(frozen=True, slots=True)
class Either(Kind[A | B]):
    """Two alternative kinds; the first that accepts a value parses it."""

    first: Kind[A]
    second: Kind[B]

    @property
    def secret(self) -> bool:
        return self.first.secret or self.second.secret

    def parse(self, raw: object) -> A | B:
        deepest: RefusedValue | None = None
        for kind in (self.first, self.second):
            try:
                return kind.parse(raw)
            except RefusedValue as refused:
                if refused.path and (deepest is None or len(refused.path) > len(deepest.path)):
                    deepest = refused
        raise deepest or self.refusal(raw)  # what is wrong inside the right shape says more

    def describe(self) -> str:
        return f"{self.first.describe()} or {self.second.describe()}"

    def show(self, value: Any) -> Any:
        try:
            self.first.parse(value)
        except RefusedValue:
            return self.second.show(value)
        return self.first.show(value)


@dataclass(frozen=True, slots=True)
class Nothing(Kind[None]):
    """An explicit absence of a value."""

    def parse(self, raw: object) -> None:
        if raw is not None and not (isinstance(raw, str) and raw.strip().lower() in NONE_WORDS):
            raise self.refusal(raw)

    def describe(self) -> str:
        return "none"


def optional(kind: Kind[T]) -> Kind[T | None]:
    """Return the kind of values of `kind` or none. None is a value too: it hides values of less important layers."""
    return Either(Nothing(), kind)


def takes_nothing(kind: Kind[Any]) -> bool:
    """Return True if none is a value of this kind."""
    try:
        return kind.parse(None) is None
    except RefusedValue:
        return False


def _parse_at(step: str, kind: Kind[T], raw: object) -> T:
    try:
        return kind.parse(raw)
    except RefusedValue as refused:
        raise refused.inside(step) from None


def _to_mapping(raw: object) -> dict[str, object] | None:
    """Return a map with text keys, or None; YAML may read a key as a number."""
    if isinstance(raw, str):
        raw = _from_json(raw)
    if not isinstance(raw, Mapping) or any(isinstance(name, bool) for name in raw):
        return None
    return {str(name): value for name, value in raw.items()}


def _from_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
