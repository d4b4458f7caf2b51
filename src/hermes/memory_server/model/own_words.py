"""Selection of sessions whose words may be sent to a model that must not receive guests' words. Every message of such a
session is marked as the owner's in its metadata. The client that writes a message sets the mark; unmarked messages are
not sent."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import not_, or_, select

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import in_parts
from hermes.memory_server.db.tables import messages
from hermes.types import OWN_MARK

MARKED = or_(*(messages.c.metadata.contains(f'"{OWN_MARK}":{space}true', autoescape=True) for space in ("", " ")))
"""Metadata is JSON text, in which quotes inside strings are escaped, so no text can imitate the mark."""


def own_sessions(tx: Tx, session_ids: Iterable[int]) -> set[int]:
    """Return the sessions among these that have messages, all of them marked."""
    own: set[int] = set()
    for part in in_parts(sorted(set(session_ids))):
        inside = messages.c.session_id.in_(part)
        held = tx.execute(select(messages.c.session_id).where(inside).distinct()).scalars()
        unmarked = tx.execute(select(messages.c.session_id).where(inside, not_(MARKED)).distinct()).scalars()
        own |= set(held) - set(unmarked)
    return own
