"""What becomes of an item of the queue that was handled, and which outcomes of several count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

MAX_CRASHES = 5
"""How often in a row the handler of an item may raise, or the process end while it handles nothing else, before the
item is dead. In a queue that keeps lost items (`WorkerTerms.keeps_lost`) only what the handler raises counts."""

GIVEN_UP = f"the process ended {MAX_CRASHES} times while it handled nothing else"
SUSPECT_CRASHES = 3
"""Crashes and losses in a row from which on an item is a suspect: its lane is handled while no other runs."""
SPLIT_LOSSES = 5
"""Losses in a row from which on an item is also claimed without its neighbours, so that the one to blame shows."""


class Done(Struct, frozen=True):
    """Handled; never again. `note` is kept with the item: what came of it."""

    note: str | None = None


class Retry(Struct, frozen=True):
    """Not now, for as long as it takes: once more at `at`. What follows in the lane waits too."""

    at: float
    reason: str


class Defect(Struct, frozen=True):
    """The handler raised: once more at `at`, from the third time on alone, and after the fifth in a row dead.

    Of items that were handled together each gets one, since nobody knows which of them it was.
    """

    at: float
    reason: str


class Postponed(Struct, frozen=True):
    """Neither it nor what is behind it was begun: as if not claimed, with `tried_at` and attempts as they were."""

    at: float
    reason: str | None = None


class Dead(Struct, frozen=True):
    """Never by itself again; the lane goes on."""

    reason: str


ItemOutcome: TypeAlias = Done | Retry | Defect | Postponed | Dead


def weigh(outcomes: Sequence[ItemOutcome], crashes: Sequence[int]) -> list[ItemOutcome]:
    """The outcomes that count, for the items of a claim, first to last, that had so many crashes before.

    Nothing counts behind an item that must wait, but for Defects that stand together; one too many is Dead.
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
