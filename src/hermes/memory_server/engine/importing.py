"""Import the items of an export with their ids and times. Items that exist are kept as they are, so an import can be
repeated.

Nothing is derived from imported messages: their conclusions are imported too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import insert, select, update

from hermes.memory_server import times
from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.statements import in_parts
from hermes.memory_server.db.tables import (
    cards,
    conclusion_versions,
    conclusions,
    memberships,
    messages,
    scope_sessions,
    sessions,
    summaries,
    workspaces,
)
from hermes.memory_server.engine.conclusions import digest, ensure_collection, link_messages
from hermes.memory_server.engine.messages import MessageDraft, add_messages
from hermes.memory_server.engine.peers import find_peer, insert_peer, peer_in
from hermes.memory_server.engine.sessions import insert_session, session_in
from hermes.memory_server.engine.standing_kinds import standing_kind
from hermes.memory_server.engine.summaries import SessionSummary, store_summary
from hermes.memory_server.engine.truth import find_tombstone_time, happened_at, import_pair, settle
from hermes.memory_server.engine.webhooks import ensure_webhook
from hermes.memory_server.engine.workspaces import ensure_workspace, lock_workspace
from hermes.memory_server.faults import Fault, Invalid, Missing
from hermes.memory_server.ids import SCOPE_PREFIX
from hermes.memory_server.tokens import count_tokens


@dataclass(slots=True)
class ImportOutcome:
    """The counts of an import."""

    added: int = 0
    present: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)
    """The refused items, by number, with the reasons."""


@dataclass(frozen=True, slots=True)
class PreparedItem:
    """An item, with everything that can be computed before the write lock is taken."""

    item: JsonMap
    draft: MessageDraft | None = None
    vector: bytes = b""


def import_part(tx: Tx, workspace: str, section: str, given: Sequence[PreparedItem], at: int) -> ImportOutcome:
    """Insert the items that do not exist. A refused item is reported, and the others are inserted."""
    outcome = ImportOutcome()
    if section == "workspace":
        item = given[0].item
        row, made = ensure_workspace(tx, workspace, at, item["metadata"], item["configuration"])
        if made:
            tx.execute(update(workspaces).where(workspaces.c.id == row.id).values(created_at=item["created_at"]))
        outcome.added, outcome.present = int(made), int(not made)
        return outcome
    ensure_workspace(tx, workspace, at)
    place = lock_workspace(tx, workspace)
    take = TAKE[section]
    for number, prepared in enumerate(given):
        try:
            if take(tx, place, prepared, at):
                outcome.added += 1
            else:
                outcome.present += 1
        except Fault as fault:  # raised before anything of the item is written
            outcome.refused.append((number, fault.reason))
    return outcome


def _take_peer(tx: Tx, place: Record, given: PreparedItem, _at: int) -> bool:
    item = given.item
    name = SCOPE_PREFIX + item["id"] if item["kind"] == "scope" else item["id"]
    if find_peer(tx, place.id, name) is not None:  # finds a merged peer too
        return False
    said = item["metadata"], item["configuration"], item["kind"]
    return insert_peer(tx, place.id, item["id"], item["created_at"], *said)


def _take_session(tx: Tx, place: Record, given: PreparedItem, _at: int) -> bool:
    item = given.item
    said = json.dumps(item["metadata"]), json.dumps(item["configuration"])
    if insert_session(tx, place.id, item["id"], item["created_at"], *said) is not None:
        return True
    session_in(tx, place, item["id"])
    return False


def _take_membership(tx: Tx, place: Record, given: PreparedItem, _at: int) -> bool:
    item = given.item
    pair = {
        "session_id": session_in(tx, place, item["session_id"]).id,
        "peer_id": peer_in(tx, place, item["peer_id"]).id,
    }
    same = select(memberships.c.id).where(*(memberships.c[name] == value for name, value in pair.items()))
    if item["left_seq"] is None:
        same = same.where(memberships.c.left_seq.is_(None))
    else:
        same = same.where(memberships.c.joined_at == item["joined_at"], memberships.c.left_seq == item["left_seq"])
    if tx.execute(same.limit(1)).first() is not None:
        return False
    names = ("observe_me", "observe_others", "joined_seq", "left_seq", "joined_at")
    tx.execute(insert(memberships).values(**pair, **{name: item[name] for name in names}))
    return True


def _take_message(tx: Tx, place: Record, given: PreparedItem, _at: int) -> bool:
    item = given.item
    session = session_in(tx, place, item["session_id"])
    peer = peer_in(tx, place, item["peer_id"])
    known = select(messages.c.session_id).where(messages.c.public_id == item["id"])
    found = tx.execute(known).scalar_one_or_none()
    if found is not None:
        if found != session.id:
            raise Invalid(f"the id {item['id']} belongs to a message elsewhere on this server")
        return False
    assert given.draft is not None, "messages are prepared"
    seq = max(item["seq"], session.message_count + 1)
    add_messages(tx, session, [(item["id"], seq, peer.id, given.draft)], item["created_at"])
    changes = {"message_count": seq}
    if seq > session.message_count + 1:
        changes["removals"] = session.removals + 1
    tx.execute(update(sessions).where(sessions.c.id == session.id).values(changes))
    return True


def _take_scoped(tx: Tx, place: Record, given: PreparedItem, at: int) -> bool:
    session = session_in(tx, place, given.item["session_id"])
    scopes = [peer_in(tx, place, SCOPE_PREFIX + name) for name in dict.fromkeys(given.item["scopes"])]
    known = select(scope_sessions.c.scope_id).where(scope_sessions.c.session_id == session.id)
    inside = {*tx.execute(known).scalars()}
    new = [scope.id for scope in scopes if scope.id not in inside]
    for scope_id in new:  # its conclusions are imported, not copied again
        values = {"scope_id": scope_id, "session_id": session.id, "state": "completed", "copied": 0, "updated_at": at}
        tx.execute(insert(scope_sessions).values(values))
    return bool(new)


def _take_conclusion(tx: Tx, place: Record, given: PreparedItem, at: int) -> bool:
    item = given.item
    pair = peer_in(tx, place, item["observer_id"]).id, peer_in(tx, place, item["observed_id"]).id
    session = None if item["session_id"] is None else session_in(tx, place, item["session_id"]).id
    known = select(conclusions.c.workspace_id).where(conclusions.c.public_id == item["id"])
    found = tx.execute(known).scalar_one_or_none()
    if found is not None:
        if found != place.id:
            raise Invalid(f"the id {item['id']} belongs to a conclusion elsewhere on this server")
        return False
    collection = ensure_collection(tx, place.id, *pair)
    deleted = find_tombstone_time(tx, collection, item["content"])
    if deleted is not None and item["created_at"] <= deleted:
        raise Invalid(f"it was deleted on this server on {times.to_day(deleted)}, after its date")
    inside = select(messages.c.id).where(messages.c.workspace_id == place.id)
    named = [inside.where(messages.c.public_id.in_(part)) for part in in_parts(item["message_ids"])]
    sources = sorted({source for query in named for source in tx.execute(query).scalars()})
    values = {
        "public_id": item["id"],
        "workspace_id": place.id,
        "collection_id": collection,
        "session_id": session,
        "digest": digest(item["content"]),
        "standing": standing_kind(item["content"]),
        "source_ids": None if item["source_ids"] is None else json.dumps(item["source_ids"]),
        "metadata": json.dumps(item["metadata"]),
        "vector": given.vector,
        "happened_at": happened_at(item["content"], item["created_at"]),
        "learnt_at": at,
        **{name: item[name] for name in ("level", "content", "times_derived", "created_at")},
    }
    tx.execute(insert(conclusions).values(values))
    row_id = tx.execute(select(conclusions.c.id).where(conclusions.c.public_id == item["id"])).scalar_one()
    link_messages(tx, row_id, sources)
    for number, version in enumerate(item["versions"], start=1):
        tx.execute(insert(conclusion_versions).values(conclusion_id=row_id, number=number, **version))
    for pair in item["supersedes"]:
        import_pair(tx, place.id, row_id, pair)
    settle(tx, row_id, at)
    return True


def _take_card(tx: Tx, place: Record, given: PreparedItem, _at: int) -> bool:
    item = given.item
    pair = peer_in(tx, place, item["observer_id"]).id, peer_in(tx, place, item["observed_id"]).id
    collection = ensure_collection(tx, place.id, *pair)
    if tx.execute(select(cards.c.collection_id).where(cards.c.collection_id == collection)).first() is not None:
        return False
    values = {"lines": json.dumps(item["lines"]), "written_by": item["written_by"], "updated_at": item["updated_at"]}
    tx.execute(insert(cards).values(collection_id=collection, **values))
    return True


def _take_summaries(tx: Tx, place: Record, given: PreparedItem, _at: int) -> bool:
    session = session_in(tx, place, given.item["session_id"])
    known = {*tx.execute(select(summaries.c.kind).where(summaries.c.session_id == session.id)).scalars()}
    new = [one for one in given.item["summaries"] if one["kind"] not in known]
    covered = [_last_covered(tx, place, session, one["message_id"]) for one in new]
    for one, last in zip(new, covered, strict=True):
        made = SessionSummary(one["kind"], one["content"], last.id, last.seq, count_tokens(one["content"]))
        store_summary(tx, session.id, made, one["created_at"])
    return bool(new)


def _last_covered(tx: Tx, place: Record, session: Record, public_id: str) -> Record:
    own = (messages.c.session_id == session.id, messages.c.public_id == public_id)
    found = tx.execute(select(messages).where(*own)).first()
    if found is None:
        raise Missing("Message", public_id, place.name)
    return found


def _take_webhook(tx: Tx, place: Record, given: PreparedItem, at: int) -> bool:
    return ensure_webhook(tx, place.name, given.item["url"], given.item["created_at"] or at)[1]


TAKE: Mapping[str, Callable[[Tx, Record, PreparedItem, int], bool]] = {
    "peers": _take_peer,
    "sessions": _take_session,
    "memberships": _take_membership,
    "messages": _take_message,
    "departures": lambda *_: False,  # memberships say who left
    "scopes": _take_scoped,
    "conclusions": _take_conclusion,
    "cards": _take_card,
    "summaries": _take_summaries,
    "webhooks": _take_webhook,
}
