"""Finding messages by their words: what an index of texts can do, whichever database it is in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hermes.memory_server.db.database import Tx

MessageIds = NDArray[np.int64]
UNREAD_AFTER, UNREAD_UNTIL = "unread_after", "unread_until"
"""Names in `meta` of the marks between which messages are indexed as an earlier version did (`catching_up`)."""


@dataclass(frozen=True, slots=True)
class SearchArea:
    """Where to look: a workspace, and within it some sessions or one author."""

    workspace_id: int
    sessions: tuple[int, ...] | None = None
    peer: int | None = None


Match = Callable[[Sequence[str], int | None, tuple[int, int] | None], MessageIds]
"""Finds words in one place, in one transaction: the newest messages that hold all of them, up to a number, the newest
first; or those with ids between two. What costs is the place."""


class TextIndex(Protocol):
    """The words of all messages. It changes in the transaction that changes the messages."""

    def create(self, tx: Tx) -> None:
        """Make it, empty, in a new database."""

    def add(self, tx: Tx, workspace_id: int, session_id: int, given: Iterable[tuple[int, int, str]]) -> None:
        """Make messages of a session findable: each is given with its id, its author's and its text."""

    def add_part(self, tx: Tx, session_id: int, first: int, last: int) -> None:
        """Make messages of a session findable, from one number to another, which are in the table already."""

    def remove_part(self, tx: Tx, session_id: int, first: int, last: int) -> None:
        """Forget messages of a session, from one number to another, which are still in the table."""

    def mend(self, tx: Tx) -> bool:
        """Build the index again from the messages if it is gone or incomplete. Was that needed?"""

    def respell(self, tx: Tx, after: int, last: int) -> None:
        """Index messages anew, from the one that comes after an id up to another, that an earlier version indexed."""

    def within(self, tx: Tx, place: SearchArea) -> Match:
        """What finds words in a place."""

    def tidy(self, tx: Tx, *, begin: bool) -> bool:
        """Remove the words of forgotten messages from the index for good, a bounded part at a time. Is there more?"""
