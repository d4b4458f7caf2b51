"""A list that a server shows in counted pages, read so that nothing is left out while others delete from it.

Whoever deletes something before a page moves the rest of the list up. So with each page it is looked whether the item
before it is still where it was; if not, it is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hermes.errors import TransferError
from hermes.transfer.remote import PAGE

AskForPart = Callable[[int, int], Mapping[str, Any]]
"""A page of the list, by its number and size."""
KNOWN = 20
"""How many of the last items are remembered: one of them must still be there."""
AWAY = 10
"""How many pages away they are looked for."""


@dataclass(frozen=True, slots=True)
class ListPart:
    """Items of a list; `begin` is where they begin and `after` where the next do, as JSON. `before` counts those that
    came before."""

    items: list[Mapping[str, Any]]
    begin: Any
    after: Any
    before: int


def read_list(ask: AskForPart, begin: Any, what: str) -> Iterator[ListPart]:
    """The items of a list from a place on, None for its first; each once and in order, at least one part. Refused when
    so much of it has changed that nobody can tell where it goes on."""
    # Files of earlier versions say the number of the page alone.
    number, known, before = begin if isinstance(begin, list) else (begin or 1, [], ((begin or 1) - 1) * PAGE)
    while True:
        start = [number, known, before]
        told = ask(number, PAGE)
        items = list(told["items"])
        if known and told["total"] and not _is_in_place(ask, (number - 1) * PAGE, known[-1]):
            number, told, items = _find(ask, number, known, what)
        before += len(items)
        known = [item["id"] for item in items][-KNOWN:] or known
        number += 1
        more = number <= told["pages"]
        yield ListPart(items, start, [number, known, before] if more else None, before - len(items))
        if not more:
            return


def _is_in_place(ask: AskForPart, position: int, known: str) -> bool:
    """Is this item the one at a position, counted from 1?"""
    return [item["id"] for item in ask(position, 1)["items"]] == [known]


def _find(ask: AskForPart, number: int, known: list[str], what: str) -> tuple[int, Mapping[str, Any], list[Any]]:
    """The page near a number that has the latest of some items, and what comes after it there."""
    for page in sorted(range(max(1, number - AWAY), number + AWAY + 1), key=lambda page: abs(page - number)):
        told = ask(page, PAGE)
        ids = [item["id"] for item in told["items"]]
        if found := [one for one in reversed(known) if one in ids]:
            return page, told, list(told["items"])[ids.index(found[0]) + 1 :]
    hint = "Delete the file that ends in .part and export again"
    raise TransferError(f"the list of {what} changed too much while it was read", hint=hint)
