"""Outcomes of queue items that were handled, and the rules for which of several count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

MAX_CRASHES = 5
"""Number of consecutive crashes after which an item is dead: its handler raised, or the process ended while it handled
nothing else. In a queue that keeps lost items (`WorkerTerms.keeps_lost`) only exceptions of the handler count."""

GIVEN_UP = f"the process ended {MAX_CRASHES} times while it handled nothing else"
MIN_SUSPECT_CRASHES = 3
"""Number of consecutive crashes and losses that make an item a suspect: its lane is handled while no other runs."""
MIN_SPLIT_LOSSES = 5
"""Number of consecutive losses after which an item is also claimed without its neighbours, to find the culprit."""


class Done(Struct, frozen=True):
    """Handled, finally. `note` is stored with the item as its result."""

    note: str | None = None


class Retry(Struct, frozen=True):
    """Try again at `at`, without a limit on attempts. Later items of the lane wait too."""

    at: float
    reason: str


class Defect(Struct, frozen=True):
    """The handler raised: try again at `at`, alone from the third time on; the fifth time in a row makes the item dead.

    Items handled together get one each, since nobody knows which of them is to blame.
    """

    at: float
    reason: str


class Postponed(Struct, frozen=True):
    """Neither this item nor later ones were begun: they count as not claimed, with `tried_at` and attempts
    unchanged."""

    at: float
    reason: str | None = None


class Dead(Struct, frozen=True):
    """Never retried automatically; the lane continues."""

    reason: str


ItemOutcome: TypeAlias = Done | Retry | Defect | Postponed | Dead


def weigh(outcomes: Sequence[ItemOutcome], crashes: Sequence[int]) -> list[ItemOutcome]:
    """Return the outcomes that count, for the items of a claim in order, given each item's earlier crashes.

    Outcomes behind an item that must wait do not count, except consecutive Defects. A Defect too many becomes Dead.
    """
    weighed: list[ItemOutcome] = []
    for outcome, before in zip(outcomes, crashes, strict=False):
        waits = bool(weighed) and isinstance(weighed[-1], Retry | Defect | Postponed)
        if waits and not (isinstance(weighed[-1], Defect) and isinstance(outcome, Defect)):
            break
        match outcome:
            case Defect(_, reason) if before + 1 >= MAX_CRASHES:
                weighed.append(Dead(reason))
            case _:
                weighed.append(outcome)
    return weighed
