"""The messages that a search may return when a filter or a deletion limits it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sqlalchemy import ColumnElement, Select, and_, select

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.tables import messages
from hermes.memory_server.db.text_index import MessageIds, SearchArea
from hermes.memory_server.engine.messages import MESSAGES

MESSAGES_PER_QUERY = 2000
"""The number of message ids in one query."""


class Allowed:
    """The messages of a search area that satisfy a condition, checked for a few ids (`keep`) or for all of them
    (`all`).
    """

    def __init__(
        self, tx: Tx, place: SearchArea, condition: ColumnElement[bool], candidates: Sequence[int] | None
    ) -> None:
        """`candidates` are the only messages that can satisfy the condition, if an index knows them; else None."""
        self.condition = condition
        self.known: MessageIds | None = None
        self._place = place
        if candidates is not None:
            self.known = np.sort(self._ask(tx, np.array(candidates, dtype=np.int64), self._in_place(by_index=False)))

    def keep(self, tx: Tx, ids: MessageIds) -> MessageIds:
        """Return the allowed ids, in the order given."""
        return ids[np.isin(ids, self._ask(tx, ids) if self.known is None else self.known)]

    def all(self, tx: Tx) -> MessageIds:
        """Return all allowed ids, the oldest first. Reads every message of the search area."""
        if self.known is None:
            self.known = np.sort(_numbers(tx, _chosen().where(self._in_place(), self.condition)))
        return self.known

    def _ask(self, tx: Tx, ids: MessageIds, *more: ColumnElement[bool]) -> MessageIds:
        parts = [ids[start : start + MESSAGES_PER_QUERY].tolist() for start in range(0, len(ids), MESSAGES_PER_QUERY)]
        asked = [_numbers(tx, _chosen().where(messages.c.id.in_(part), self.condition, *more)) for part in parts]
        return np.concatenate(asked) if asked else np.zeros(0, dtype=np.int64)

    def _in_place(self, *, by_index: bool = True) -> ColumnElement[bool]:
        """Return the condition "in this area". Without `by_index` it is written so that the database uses the index of
        ids.
        """
        place = self._place
        inside: list[ColumnElement[bool]] = []
        if place.sessions is not None:
            inside.append(_bare(messages.c.session_id, by_index).in_(place.sessions))
        if place.peer is not None:
            inside.append(_bare(messages.c.peer_id, by_index and not inside) == place.peer)
        return and_(*inside) if inside else _bare(messages.c.workspace_id, by_index) == place.workspace_id


def _bare(column: ColumnElement[int], by_index: bool) -> ColumnElement[int]:
    """Return the column as a sum, so that the database does not use the column's index."""
    return column if by_index else column + 0


def _chosen() -> Select[tuple[int]]:
    return select(messages.c.id).select_from(MESSAGES)


def _numbers(tx: Tx, query: Select[tuple[int]]) -> MessageIds:
    return np.array([row[0] for row in tx.execute(query)], dtype=np.int64)
