"""A list that a server returns in numbered pages, read completely while others delete from it.

A deletion before a page moves the rest of the list up. So with each page the reader checks whether the item before it
is still in its place; if not, it searches for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hermes.errors import TransferError
from hermes.transfer.remote import PAGE_ITEMS

AskForPart = Callable[[int, int], Mapping[str, Any]]
"""A function that returns a page of the list by number and size."""
MAX_KNOWN_ITEMS = 20
"""Number of last items that are remembered: one of them must still exist."""
MAX_PAGE_DISTANCE = 10
"""Maximum distance, in pages, at which they are searched."""


@dataclass(frozen=True, slots=True)
class ListPart:
    """A page of a list. `begin` is its position and `after` that of the next page, as JSON values; `before` counts the
    items on earlier pages."""

    items: list[Mapping[str, Any]]
    begin: Any
    after: Any
    before: int


def read_list(ask: AskForPart, begin: Any, what: str) -> Iterator[ListPart]:
    """Yield the items of a list from a position on (None: the start), each once and in order, in at least one part.
    Raises TransferError if the list changed so much that the position is lost."""
    # Files of earlier versions contain only the number of the page.
    number, known, before = begin if isinstance(begin, list) else (begin or 1, [], ((begin or 1) - 1) * PAGE_ITEMS)
    while True:
        start = [number, known, before]
        told = ask(number, PAGE_ITEMS)
        items = list(told["items"])
        if known and told["total"] and not _is_in_place(ask, (number - 1) * PAGE_ITEMS, known[-1]):
            number, told, items = _find(ask, number, known, what)
        before += len(items)
        known = [item["id"] for item in items][-MAX_KNOWN_ITEMS:] or known
        number += 1
        more = number <= told["pages"]
        yield ListPart(items, start, [number, known, before] if more else None, before - len(items))
        if not more:
            return


def _is_in_place(ask: AskForPart, position: int, known: str) -> bool:
    """Return True if this item is at `position`, counted from 1."""
    return [item["id"] for item in ask(position, 1)["items"]] == [known]


def _find(ask: AskForPart, number: int, known: list[str], what: str) -> tuple[int, Mapping[str, Any], list[Any]]:
    """Return the nearest page that contains the latest of the known items, and the items after it on that page."""
    for page in sorted(
        range(max(1, number - MAX_PAGE_DISTANCE), number + MAX_PAGE_DISTANCE + 1),
        key=lambda page: abs(page - number),
    ):
        told = ask(page, PAGE_ITEMS)
        ids = [item["id"] for item in told["items"]]
        if found := [one for one in reversed(known) if one in ids]:
            return page, told, list(told["items"])[ids.index(found[0]) + 1 :]
    hint = "Delete the file that ends in .part and export again"
    raise TransferError(f"the list of {what} changed too much while it was read", hint=hint)
