"""Value kinds of honcho.json, beside those of other settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hermes.honcho.identity import peer_text
from hermes.honcho.names import MAX_NAME_CHARS
from hermes.settings.kinds import Integer, Kind, Number, Secret, Text


@dataclass(frozen=True, slots=True)
class WrittenText(Text):
    """Text given by a person. Numbers are refused: written in another way, they would be another name."""

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise self.refusal(raw)
        return Text.parse(self, raw)


@dataclass(frozen=True, slots=True)
class HonchoName(WrittenText):
    """The name of a workspace or peer. Characters that a name may not have become `-`; "" means unset."""

    def parse(self, raw: object) -> str:
        text = WrittenText.parse(self, raw)
        name = peer_text(text)
        if len(name) > MAX_NAME_CHARS or (text and not name.strip("-")):
            raise self.refusal(raw)
        return name

    def describe(self) -> str:
        return f"a name of letters, digits, `-` and `_`, at most {MAX_NAME_CHARS}"


@dataclass(frozen=True, slots=True)
class Prefix(WrittenText):
    """A prefix of ids, short enough to leave room for them."""

    def parse(self, raw: object) -> str:
        prefix = WrittenText.parse(self, raw)
        if len(prefix) > MAX_NAME_CHARS // 2:
            raise self.refusal(raw)
        return prefix

    def describe(self) -> str:
        return f"text of at most {MAX_NAME_CHARS // 2} characters"


@dataclass(frozen=True, slots=True)
class NonEmptyName(HonchoName):
    def parse(self, raw: object) -> str:
        name = HonchoName.parse(self, raw)
        if not name:
            raise self.refusal(raw)
        return name


@dataclass(frozen=True, slots=True)
class ApiKey(Secret):
    """A key that fits into a request header; surrounding spaces are dropped."""

    def parse(self, raw: object) -> str:
        key = Secret.parse(self, raw).strip() if isinstance(raw, str) else ""
        if not isinstance(raw, str) or not key.isascii() or not key.isprintable() or " " in key:
            raise self.refusal(raw)
        return key

    def describe(self) -> str:
        return "a key of letters, digits and signs"


@dataclass(frozen=True, slots=True)
class Capped(Integer):
    """A whole number. Values above `maximum`, the servers' limit, count as `maximum`."""

    def parse(self, raw: object) -> int:
        whole = Integer(self.minimum).parse(raw)
        return whole if self.maximum is None else min(whole, self.maximum)

    def describe(self) -> str:
        return f"{Integer.describe(self)} (more counts as that)"


@dataclass(frozen=True, slots=True)
class Seconds(Number):
    """A time span. Zero and negative numbers mean unset, as other versions write it."""

    def parse(self, raw: object) -> float:
        return max(Number(None, self.maximum).parse(raw), 0.0)


@dataclass(frozen=True, slots=True)
class Grant(Kind[Mapping[str, object] | None]):
    """The OAuth grant of a sign-in; an empty map means none. Only its client and expiry are shown."""

    @property
    def secret(self) -> bool:
        return True

    def parse(self, raw: object) -> Mapping[str, object] | None:
        if raw == {}:
            return None
        if not isinstance(raw, Mapping) or not isinstance(raw.get("refreshToken"), str):
            raise self.refusal(raw)
        return raw

    def describe(self) -> str:
        return "a map with at least refreshToken"

    def show(self, value: Any) -> Any:
        return {name: value[name] for name in ("clientId", "expiresAt") if name in value}
