"""The sections of an export, in import order: no item refers to a later section."""

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
"""Items with their line numbers."""
TellProgress = Callable[[str, int], None]
"""A callback that receives a section and its number of finished items."""
Report = dict[str, Any]
Lacking = Counter[str]
"""Kinds of data that could not be transferred, with counts."""


@dataclass(frozen=True, slots=True)
class SectionPage:
    """A page of a section; `after` is the position of the next page, None for the last one."""

    items: list[dict[str, Any]]
    after: Any


class Source(Protocol):
    """A server that is read."""

    kind: str
    """`hermes` or `honcho`: the API that is used."""

    def check(self) -> None:
        """Raise TransferError if the workspace does not exist."""

    def pages(self, section: str, after: Any) -> Iterator[SectionPage]:
        """Yield the pages of a section from a position on. At least one; the last has no `after`."""

    def saw(self, section: str, item: TransferItem) -> None:
        """Record an item that is in the file, from this or an earlier run."""

    def lacking(self) -> Lacking:
        """Return the counts of data that the server does not return."""
