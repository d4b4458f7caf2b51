"""The activity of sessions: where people wrote messages, as opposed to compressions that copied them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hermes.audit.damage import ROTATED
from hermes.audit.messages import SaidMessage, read_messages
from hermes.db.engine import Tx
from hermes.store.schema import TableShape, live_rows
from hermes.types import Session

COMPRESSION_FILL_SECONDS = 10.0
"""Time in which a compression fills the session that it creates."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Ids of a session's newest live message, and of the newest that a person wrote there: after the compression that
    ended the session, else after the one that created it. 0 for no message."""

    newest: int = 0
    went_on: int = 0


def read_activity(tx: Tx, shape: TableShape, sessions: Mapping[str, Session]) -> dict[str, Activity]:
    """Return the activity of every session whose messages decide a finding."""
    wanted, live = _of_interest(sessions.values(), sessions), live_rows(shape)
    edges = {
        row["session_id"]: (row["first"], row["newest"])
        for row in tx.execute(
            "SELECT t.session_id, min(t.id) AS first, max(t.id) AS newest FROM messages t "
            f"WHERE t.session_id IN (SELECT value FROM json_each(?)) AND {live} GROUP BY t.session_id",
            (json.dumps(sorted(wanted)),),
        )
    }
    words = read_messages(tx, shape, wanted, f"t.role = 'user' AND {live}")
    filled = _first_filled(sessions, {key: first for key, (first, _) in edges.items()})
    return {
        key: Activity(newest, _went_on(sessions[key], words, filled.get(key))) for key, (_, newest) in edges.items()
    }


def _went_on(session: Session, words: Mapping[str, list[SaidMessage]], filled: int | None) -> int:
    own = [said for said in words.get(session.id, ()) if not said.is_summary]
    if session.end_reason == ROTATED and session.ended_at is not None:
        later = [said.id for said in own if said.time > session.ended_at or (filled is not None and said.id > filled)]
    else:
        carried = {said.wording for said in words.get(session.parent_session_id or "", ())}
        birth = session.started_at + COMPRESSION_FILL_SECONDS
        later = [said.id for said in own if said.time > birth or said.wording not in carried]
    return max(later, default=0)


def _first_filled(sessions: Mapping[str, Session], first: Mapping[str, int]) -> dict[str, int]:
    """Return, for each parent, the first message in any child: later messages of the parent are in no child."""
    filled: dict[str, int] = {}
    for key, row_id in first.items():
        parent = sessions[key].parent_session_id
        if parent is not None:
            filled[parent] = max(row_id, filled.get(parent, 0))
    return filled


def _of_interest(every: Iterable[Session], sessions: Mapping[str, Session]) -> set[str]:
    """Return sessions with a parent, parents, sessions that a compression ended, and open ones that share a key."""
    found: set[str] = set()
    by_key: dict[str, str] = {}
    for session in every:
        if session.parent_session_id in sessions:
            found |= {session.id, str(session.parent_session_id)}
        if session.end_reason == ROTATED:
            found.add(session.id)
        if session.session_key and session.ended_at is None and session.end_reason is None:
            first = by_key.setdefault(session.session_key, session.id)
            found |= {first, session.id} if first != session.id else set()
    return found
