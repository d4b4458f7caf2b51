"""What an export is made of, in the order in which it can be imported: nothing refers to what comes later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

SECTIONS = (
    "workspace",
    "peers",
    "sessions",
    "scopes",
    "memberships",
    "messages",
    "departures",
    "conclusions",
    "cards",
    "summaries",
    "webhooks",
)
TransferItem = Mapping[str, Any]
Numbered = Sequence[tuple[int, dict[str, Any]]]
"""Items with the numbers of their lines."""
TellProgress = Callable[[str, int], None]
"""Hears of each section how many items of it are done."""
Report = dict[str, Any]
Lacking = Counter[str]
"""What could not be carried, and how much of it."""


@dataclass(frozen=True, slots=True)
class SectionPage:
    """Items of a section; `after` is where the next page begins, None when there is none."""

    items: list[dict[str, Any]]
    after: Any


class Source(Protocol):
    """A server that is read."""

    kind: str
    """`hermes` or `honcho`: which routes were read."""

    def check(self) -> None:
        """Refuse a workspace that is not there."""

    def pages(self, section: str, after: Any) -> Iterator[SectionPage]:
        """The pages of a section from one on. At least one, and the last has no `after`."""

    def saw(self, section: str, item: TransferItem) -> None:
        """An item that is in the file, now or from an earlier run."""

    def lacking(self) -> Lacking:
        """What the server does not tell."""
