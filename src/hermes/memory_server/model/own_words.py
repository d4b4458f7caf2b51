"""Which sessions may be sent to a model whose owner keeps guests' words from it: those that are marked, message by
message, as the owner's own. Whoever writes messages sets the mark in their metadata; what has none is not sent."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import not_, or_, select

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import in_parts
from hermes.memory_server.db.tables import messages
from hermes.types import OWN_MARK

MARKED = or_(*(messages.c.metadata.contains(f'"{OWN_MARK}":{space}true', autoescape=True) for space in ("", " ")))
"""Metadata is JSON text; a quote inside of one of its strings is escaped, so no text can look like the mark."""


def own_sessions(tx: Tx, session_ids: Iterable[int]) -> set[int]:
    """Return those of these sessions that have messages, all of which are marked."""
    own: set[int] = set()
    for part in in_parts(sorted(set(session_ids))):
        inside = messages.c.session_id.in_(part)
        held = tx.execute(select(messages.c.session_id).where(inside).distinct()).scalars()
        unmarked = tx.execute(select(messages.c.session_id).where(inside, not_(MARKED)).distinct()).scalars()
        own |= set(held) - set(unmarked)
    return own
