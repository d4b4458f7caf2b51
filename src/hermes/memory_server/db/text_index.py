"""The interface of a full-text index of messages, for any database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hermes.memory_server.db.database import Tx

MessageIds = NDArray[np.int64]
UNREAD_AFTER, UNREAD_UNTIL = "unread_after", "unread_until"
"""Names in `meta` of the marks that bound the messages indexed as an earlier version did (`catching_up`)."""


@dataclass(frozen=True, slots=True)
class SearchArea:
    """The area of a search: a workspace, and within it some sessions or one author."""

    workspace_id: int
    sessions: tuple[int, ...] | None = None
    peer: int | None = None


Match = Callable[[Sequence[str], int | None, tuple[int, int] | None], MessageIds]
"""Return the messages in one area that contain all words, newest first: at most a given number, or those with ids in a
range. The cost depends on the size of the area."""


class TextIndex(Protocol):
    """The words of all messages, changed in the transaction that changes the messages."""

    def create(self, tx: Tx) -> None:
        """Create the empty index in a new database."""

    def add(self, tx: Tx, workspace_id: int, session_id: int, given: Iterable[tuple[int, int, str]]) -> None:
        """Add messages of a session, each with its id, its author's id and its text."""

    def add_part(self, tx: Tx, session_id: int, first: int, last: int) -> None:
        """Add the messages of a session with numbers from `first` to `last`, which are already in the table."""

    def remove_part(self, tx: Tx, session_id: int, first: int, last: int) -> None:
        """Remove the messages of a session with numbers from `first` to `last`, which are still in the table."""

    def mend(self, tx: Tx) -> bool:
        """Rebuild the index from the messages if it is missing or incomplete. Return True if it was rebuilt."""

    def respell(self, tx: Tx, after: int, last: int) -> None:
        """Index again the messages with ids in (after, last], which an earlier version indexed."""

    def within(self, tx: Tx, place: SearchArea) -> Match:
        """Return a function that finds words in an area."""

    def tidy(self, tx: Tx, *, begin: bool) -> bool:
        """Purge one bounded part of the words of removed messages from the index. Return True if more remain."""
