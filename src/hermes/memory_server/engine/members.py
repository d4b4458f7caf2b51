"""Members of sessions: since when they are in, and whom they observe."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import bindparam, exists, func, select, text, union_all, update

from hermes.memory_server import limits
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import PreparedStatement, inserting
from hermes.memory_server.db.tables import OBSERVING, memberships, peers, scope_sessions
from hermes.memory_server.engine.peers import ensure_peer_ids, find_peer
from hermes.memory_server.faults import Missing, Refused
from hermes.memory_server.ids import SCOPE_PREFIX

ROWS = (
    select(memberships.c.peer_id, memberships.c.observe_me, memberships.c.observe_others, peers.c.kind, peers.c.name)
    .add_columns(peers.c.configuration)
    .select_from(memberships.join(peers, peers.c.id == memberships.c.peer_id))
    .where(memberships.c.session_id == bindparam("session_id"), memberships.c.left_seq.is_(None))
)
MEMBER = PreparedStatement(ROWS.where(memberships.c.peer_id == bindparam("peer_id")))
WITH_OBSERVERS = PreparedStatement(
    union_all(ROWS.where(text(OBSERVING)), ROWS.where(memberships.c.peer_id == bindparam("peer_id")))
)
PRESENT = PreparedStatement(
    ROWS.where(memberships.c.peer_id > bindparam("after")).order_by(memberships.c.peer_id).limit(bindparam("most"))
)
JOIN = PreparedStatement(
    inserting(memberships, "session_id", "peer_id", "observe_me", "observe_others", "joined_seq", "joined_at")
)
STAY = (
    memberships.c.session_id == bindparam("session"),
    memberships.c.peer_id == bindparam("peer"),
    memberships.c.left_seq.is_(None),
)
LEAVE = PreparedStatement(update(memberships).where(*STAY).values(left_seq=bindparam("seq")))
CONFIGURE = PreparedStatement(
    update(memberships)
    .where(*STAY)
    .values(observe_me=bindparam("observe_me_"), observe_others=bindparam("observe_others_"))
)
MAX_ALONE_PEERS = 8
"""The number of peers that `sessions_alone` accepts."""
OTHER = memberships.alias("other")
ALONE = PreparedStatement(
    select(memberships.c.session_id)
    .where(
        memberships.c.peer_id == bindparam("first"),
        ~exists().where(
            OTHER.c.session_id == memberships.c.session_id,
            OTHER.c.peer_id.not_in([bindparam(f"known_{number}") for number in range(MAX_ALONE_PEERS)]),
        ),
    )
    .distinct()
    .order_by(memberships.c.session_id.desc())
    .limit(bindparam("most"))
)
MEMBERS_PER_TRANSACTION = 50
"""The number of members that one transaction adds or removes. Small, because other writers wait meanwhile."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Observation:
    """Whether others learn about a member, and whether it learns about others. None means that wider settings
    decide.
    """

    observe_me: bool | None = None
    observe_others: bool | None = None


def sessions_alone(tx: Tx, workspace_id: int, names: Sequence[str]) -> tuple[int, ...]:
    """Return the sessions that the first of these peers is in and that no other peers were ever in."""
    known = [found.id for name in names if (found := find_peer(tx, workspace_id, name)) is not None]
    first = find_peer(tx, workspace_id, names[0])
    if first is None:
        return ()
    given = {f"known_{number}": known[number % len(known)] for number in range(MAX_ALONE_PEERS)}
    rows = ALONE.rows(tx, first=first.id, most=limits.SESSIONS_PER_RECALL, **given)
    return tuple(row.session_id for row in rows)


def parts(given: Mapping[str, T]) -> list[dict[str, T]]:
    """Split members into parts, one for each transaction. There is at least one part, which may be empty."""
    items = list(given.items())
    return [
        dict(items[start : start + MEMBERS_PER_TRANSACTION]) for start in range(0, len(items), MEMBERS_PER_TRANSACTION)
    ] or [{}]


def observers_first(given: Mapping[str, Observation]) -> dict[str, Observation]:
    """Sort observers first, so that too many are refused before any part is added. Raise Refused if there are more
    observers than a session may have.
    """
    _check_observer_count(sum(one.observe_others is True for one in given.values()))
    if len(given) <= MEMBERS_PER_TRANSACTION:
        return dict(given)
    return dict(sorted(given.items(), key=lambda item: item[1].observe_others is not True))


def add_members(tx: Tx, session: Record, given: Mapping[str, Observation], at: int) -> None:
    """Add peers to a session. Members keep their settings and the time at which they joined."""
    ids = ensure_peer_ids(tx, session.workspace_id, given, at)
    for name, observation in given.items():
        if MEMBER.first(tx, session_id=session.id, peer_id=ids[name]) is None:
            _join(tx, session, ids[name], observation, at)
    if any(observation.observe_others for observation in given.values()):
        check_observers(tx, session.id)


def add_authors(tx: Tx, session: Record, peer_ids: Collection[int], at: int) -> dict[int, Record]:
    """Add authors to the session as of just before their messages. Return the rows of these authors and of all
    observers.
    """
    found: dict[int, Record] = {}
    for peer_id in peer_ids:
        found |= _with_observers(tx, session.id, peer_id)
        if peer_id not in found:
            _join(tx, session, peer_id, Observation(), at)
            found |= _with_observers(tx, session.id, peer_id)
    return found


def _with_observers(tx: Tx, session_id: int, peer_id: int) -> dict[int, Record]:
    return {row.peer_id: row for row in WITH_OBSERVERS.rows(tx, session_id=session_id, peer_id=peer_id)}


def set_members(tx: Tx, session: Record, given: Mapping[str, Observation], at: int) -> None:
    """Add these peers to the session, or change their settings if they are members."""
    ids = ensure_peer_ids(tx, session.workspace_id, given, at)
    for name, observation in given.items():
        if MEMBER.first(tx, session_id=session.id, peer_id=ids[name]) is None:
            _join(tx, session, ids[name], observation, at)
        else:
            _configure(tx, session.id, ids[name], observation)


def remove_others(tx: Tx, session: Record, kept: Collection[str], after: int) -> int | None:
    """Remove some of the members whose names are not in `kept`; scopes stay. Return the last peer id checked, after
    which the next part begins, or None after the last part.
    """
    present = PRESENT.rows(tx, session_id=session.id, after=after, most=MEMBERS_PER_TRANSACTION)
    for row in present:
        if row.kind == "peer" and row.name not in kept:
            _leave(tx, session, row.peer_id)
    return int(present[-1].peer_id) if len(present) == MEMBERS_PER_TRANSACTION else None


def remove_members(tx: Tx, session: Record, names: Iterable[str]) -> None:
    """Remove peers from the session; those that are not members are skipped."""
    for name in names:
        peer = find_peer(tx, session.workspace_id, name)
        if peer is not None:
            _leave(tx, session, peer.id)


def get_observation(tx: Tx, session: Record, name: str) -> Observation:
    """Return the settings of a member, or of a scope of the session. Raise Missing if the peer is not in the
    session.
    """
    scope = find_peer(tx, session.workspace_id, name) if name.startswith(SCOPE_PREFIX) else None
    inside = select(scope_sessions.c.scope_id).where(scope_sessions.c.session_id == session.id)
    if scope is not None and tx.execute(inside.where(scope_sessions.c.scope_id == scope.id)).first() is not None:
        return Observation(observe_me=False, observe_others=True)
    row = _member(tx, session, name)
    return Observation(row.observe_me, row.observe_others)


def set_observation(tx: Tx, session: Record, name: str, given: Observation, at: int) -> None:
    """Change a member's settings; those not given are kept. A peer that is not in the session joins it."""
    add_members(tx, session, {name: Observation()}, at)
    row = _member(tx, session, name)
    merged = Observation(
        row.observe_me if given.observe_me is None else given.observe_me,
        row.observe_others if given.observe_others is None else given.observe_others,
    )
    _configure(tx, session.id, row.peer_id, merged)
    check_observers(tx, session.id)


def check_observers(tx: Tx, session_id: int) -> None:
    """Raise Refused if a session has more observers than allowed; scopes do not count."""
    query = (
        select(func.count())
        .select_from(memberships.join(peers, peers.c.id == memberships.c.peer_id))
        .where(memberships.c.session_id == session_id, text(OBSERVING), peers.c.kind == "peer")
    )
    _check_observer_count(tx.execute(query).scalar_one())


def _check_observer_count(observers: int) -> None:
    if observers > limits.MAX_OBSERVERS:
        most = f"Maximum allowed is {limits.MAX_OBSERVERS} observers per session"
        raise Refused(f"A session cannot have {observers} observers (peers with observe_others). {most}")


def _member(tx: Tx, session: Record, name: str) -> Record:
    peer = find_peer(tx, session.workspace_id, name)
    row = None if peer is None else MEMBER.first(tx, session_id=session.id, peer_id=peer.id)
    if row is None:
        raise Missing("Peer", f"{name} in session {session.name}", session.workspace)
    return row


def _join(tx: Tx, session: Record, peer_id: int, observation: Observation, at: int) -> None:
    given = {"observe_me": observation.observe_me, "observe_others": observation.observe_others}
    JOIN.run(tx, session_id=session.id, peer_id=peer_id, joined_seq=session.message_count, joined_at=at, **given)


def _configure(tx: Tx, session_id: int, peer_id: int, observation: Observation) -> None:
    given = {"observe_me_": observation.observe_me, "observe_others_": observation.observe_others}
    CONFIGURE.run(tx, session=session_id, peer=peer_id, **given)


def _leave(tx: Tx, session: Record, peer_id: int) -> None:
    LEAVE.run(tx, session=session.id, peer=peer_id, seq=session.message_count)
