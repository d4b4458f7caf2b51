"""Who is in a session, since when, and whom they observe."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import bindparam, func, insert, select, update

from hermes.memory_server import limits
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import Prepared
from hermes.memory_server.db.tables import memberships, peers
from hermes.memory_server.engine.peers import ensure_peer_ids, find_peer
from hermes.memory_server.faults import Missing, Refused

ACTIVE = Prepared(
    select(memberships.c.peer_id, memberships.c.observe_me, memberships.c.observe_others, peers.c.kind, peers.c.name)
    .add_columns(peers.c.configuration)
    .select_from(memberships.join(peers, peers.c.id == memberships.c.peer_id))
    .where(memberships.c.session_id == bindparam("session_id"), memberships.c.left_seq.is_(None))
)


@dataclass(frozen=True, slots=True)
class Observation:
    """What a member may be learnt about, and whether it learns about the others. None: as elsewhere."""

    observe_me: bool | None = None
    observe_others: bool | None = None


def add_members(tx: Tx, session: Record, given: Mapping[str, Observation], at: int) -> None:
    """Let peers into a session; who is in already keeps what was set, and when they came."""
    ids = ensure_peer_ids(tx, session.workspace_id, given, at)
    present = active_members(tx, session.id)
    for name, observation in given.items():
        if ids[name] not in present:
            _join(tx, session, ids[name], observation, at)
    check_observers(tx, session.id)


def add_authors(tx: Tx, session: Record, peer_ids: Collection[int], at: int) -> dict[int, Record]:
    """Whoever writes is in the session from before that message on. All who are in it now."""
    present = active_members(tx, session.id)
    missing = [peer_id for peer_id in peer_ids if peer_id not in present]
    for peer_id in missing:
        _join(tx, session, peer_id, Observation(), at)
    return active_members(tx, session.id) if missing else present


def set_members(tx: Tx, session: Record, given: Mapping[str, Observation], at: int) -> None:
    """Exactly these peers are in the session; scopes stay."""
    ids = ensure_peer_ids(tx, session.workspace_id, given, at)
    kept = set(ids.values())
    for peer_id, row in active_members(tx, session.id).items():
        if peer_id not in kept and row.kind == "peer":
            _leave(tx, session, peer_id)
    present = active_members(tx, session.id)
    for name, observation in given.items():
        if ids[name] in present:
            _configure(tx, session.id, ids[name], observation)
        else:
            _join(tx, session, ids[name], observation, at)
    check_observers(tx, session.id)


def remove_members(tx: Tx, session: Record, names: Iterable[str]) -> None:
    """Let peers out; who is not in is passed over."""
    for name in names:
        peer = find_peer(tx, session.workspace_id, name)
        if peer is not None:
            _leave(tx, session, peer.id)


def get_observation(tx: Tx, session: Record, name: str) -> Observation:
    """What is set for a member; refused when the peer is not in the session."""
    row = _member(tx, session, name)
    return Observation(row.observe_me, row.observe_others)


def set_observation(tx: Tx, session: Record, name: str, given: Observation) -> None:
    """Change what is set for a member; what is not given stays."""
    row = _member(tx, session, name)
    merged = Observation(
        row.observe_me if given.observe_me is None else given.observe_me,
        row.observe_others if given.observe_others is None else given.observe_others,
    )
    _configure(tx, session.id, row.peer_id, merged)
    check_observers(tx, session.id)


def active_members(tx: Tx, session_id: int) -> dict[int, Record]:
    """Everyone who is in the session now, scopes too, with what is set for them."""
    return {row.peer_id: row for row in ACTIVE.rows(tx, session_id=session_id)}


def check_observers(tx: Tx, session_id: int) -> None:
    """Refuse more observers than a session may have; scopes do not count."""
    query = (
        select(func.count())
        .select_from(memberships.join(peers, peers.c.id == memberships.c.peer_id))
        .where(memberships.c.session_id == session_id, memberships.c.left_seq.is_(None))
        .where(memberships.c.observe_others.is_(True), peers.c.kind == "peer")
    )
    if tx.execute(query).scalar_one() > limits.OBSERVERS:
        raise Refused(f"A session can have at most {limits.OBSERVERS} peers that observe others")


def _member(tx: Tx, session: Record, name: str) -> Record:
    for row in active_members(tx, session.id).values():
        if row.name == name:
            return row
    raise Missing("Peer", f"{name} in session {session.name}", session.workspace)


def _join(tx: Tx, session: Record, peer_id: int, observation: Observation, at: int) -> None:
    tx.execute(
        insert(memberships).values(
            session_id=session.id,
            peer_id=peer_id,
            observe_me=observation.observe_me,
            observe_others=observation.observe_others,
            joined_seq=session.message_count,
            joined_at=at,
        )
    )


def _configure(tx: Tx, session_id: int, peer_id: int, observation: Observation) -> None:
    stay = (memberships.c.session_id == session_id, memberships.c.peer_id == peer_id, memberships.c.left_seq.is_(None))
    tx.execute(
        update(memberships)
        .where(*stay)
        .values(observe_me=observation.observe_me, observe_others=observation.observe_others)
    )


def _leave(tx: Tx, session: Record, peer_id: int) -> None:
    stay = (memberships.c.session_id == session.id, memberships.c.peer_id == peer_id, memberships.c.left_seq.is_(None))
    tx.execute(update(memberships).where(*stay).values(left_seq=session.message_count))
