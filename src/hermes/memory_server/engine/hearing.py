"""Which sessions of a place a peer has heard in full. To ask for each message costs more than the search itself."""

from __future__ import annotations

import numpy as np
from sqlalchemy import bindparam, select

from hermes.memory_server import limits
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import memberships
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.engine.outlines import Seen

MOST = 2000
"""Stays of a peer that are looked at."""
STAYS = PreparedStatement(
    select(memberships.c.session_id, memberships.c.joined_seq, memberships.c.left_seq)
    .where(memberships.c.peer_id == bindparam("peer_id"))
    .limit(MOST + 1)
)


def heard_part(tx: Tx, seen: Seen, place: SearchArea, listener: int) -> SearchArea | None:
    """The place, narrowed to sessions of which the peer has heard every message. None where whole sessions do not tell:
    in one that matters it joined late or left, or there are too many."""
    stays = STAYS.rows(tx, peer_id=listener)
    if len(stays) > MOST:
        return None
    whole = {stay.session_id for stay in stays if stay.joined_seq == 0 and stay.left_seq is None}
    sessions = set(seen.ends) if place.sessions is None else set(place.sessions)
    if sessions <= whole:
        return place
    in_part = {stay.session_id for stay in stays} & sessions - whole
    if in_part and _speaks_in(seen, place, in_part):
        return None
    heard = sessions & whole
    return (
        SearchArea(place.workspace_id, tuple(heard), place.peer) if len(heard) <= limits.SESSIONS_PER_RECALL else None
    )


def _speaks_in(seen: Seen, place: SearchArea, sessions: set[int]) -> bool:
    """Whether any message of the place is in one of these sessions."""
    inside = np.isin(seen.rows.sessions, np.array([*sessions], dtype=np.int32))
    return bool(inside.any() if place.peer is None else (seen.rows.peers[inside] == place.peer).any())
