"""What a plugin's commands have beside its host: a person to ask, a place to print, and who talks on chat platforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from hermes.types import Json


class Acquaintance(Struct, frozen=True):
    """Someone who talks on a chat platform, or may."""

    platform: str
    user_id: str
    name: str = ""
    is_owner: bool = False
    is_marked: bool = False
    """Whether anybody has said who it is; until then it is a guest."""

    @property
    def who(self) -> str:
        return f"{self.platform}:{self.user_id}"


class Dialog(Protocol):
    """How a set-up talks with a person."""

    @property
    def can_ask(self) -> bool:
        """Whether anybody is there to answer."""

    def ask(self, text: str, default: str = "", *, secret: bool = False) -> str: ...

    def choose(self, text: str, options: Mapping[str, str], default: str) -> str:
        """One of the options: a word for each, and what it means."""

    def say(self, text: str) -> None: ...


class Desk(Protocol):
    """Where a plugin's commands do their work."""

    @property
    def dialog(self) -> Dialog: ...

    def of_profile(self, name: str) -> Desk:
        """The desk of another profile of this installation; `default` is one too."""

    @property
    def platforms(self) -> Sequence[str]:
        """The chat platforms that are configured, the API among them."""

    def people(self) -> Sequence[Acquaintance]:
        """Everyone who talks on them, or may."""

    def mark_owner(self, people: Sequence[Acquaintance]) -> None:
        """The person says that these are accounts of the owner."""

    def print_lines(self, lines: Sequence[tuple[str, str]]) -> None:
        """Labels with their values, one below the other."""

    def print_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None: ...

    def print_json(self, value: Json) -> None: ...
