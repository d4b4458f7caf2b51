"""Dreams: going over what is held. The floor merges conclusions that say the same and fills in a missing card."""

from __future__ import annotations

import json
import re
from typing import Any

from sqlalchemy import Row, select, update

from hermes.memory_server.db.database import JsonMap, Tx
from hermes.memory_server.db.tables import conclusions, workspaces
from hermes.memory_server.engine.cards import is_written_by_person, write_card
from hermes.memory_server.engine.conclusions import link_messages, lock_collection, remove_conclusions
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.peers import get_peer
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.settings import resolve
from hermes.memory_server.engine.standing_kinds import is_secret
from hermes.memory_server.engine.workspaces import get_workspace
from hermes.memory_server.faults import Refused
from hermes.memory_server.ids import refuse_scopes

CARD_LINES = 40
IDENTITY = re.compile(
    r"\b(my name|i am|i'm|i live|i work|i like|i love|i hate|i prefer|i have|my [a-z]+ (is|are))\b", re.IGNORECASE
)


def schedule_dream(
    tx: Tx, workspace: str, observer: str, observed: str | None, kind: str, session: str | None, at: int
) -> None:
    """Queue a dream about a peer; refused where dreams are switched off."""
    refuse_scopes(observed or observer)
    place = get_workspace(tx, workspace)
    layers = [place.configuration]
    session_id = None
    if session is not None:
        found = get_session(tx, workspace, session)
        layers.append(found.configuration)
        session_id = found.id
    if not resolve(*layers).dreams:
        raise Refused("Dreams are disabled for this workspace or session")
    watcher = get_peer(tx, workspace, observer)
    watched = get_peer(tx, workspace, observed or observer)
    unit = f"dream:{place.id}:{watcher.id}:{watched.id}"
    payload = {"observer": watcher.id, "observed": watched.id, "kind": kind}
    add_job(tx, "dream", unit, at, place.id, payload, session_id=session_id, observers=[watcher.id])


def dream(tx: Tx, workspace_id: int, payload: JsonMap, at: int) -> None:
    observer, observed = payload["observer"], payload["observed"]
    collection = lock_collection(tx, observer, observed)
    if collection is None:
        return
    live = (conclusions.c.collection_id == collection, conclusions.c.deleted_at.is_(None))
    rows = list(tx.execute(select(conclusions).where(*live).order_by(conclusions.c.created_at, conclusions.c.id)))
    if payload["kind"] == "omni":
        rows = _merge_equal(tx, collection, rows)
    configuration = select(workspaces.c.configuration).where(workspaces.c.id == workspace_id)
    settings = resolve(tx.execute(configuration).scalar_one())
    if settings.create_card and not is_written_by_person(tx, observer, observed):
        told = [row.content for row in reversed(rows) if IDENTITY.search(row.content) and not is_secret(row.content)]
        lines = list(dict.fromkeys(told))
        if lines:
            write_card(tx, workspace_id, observer, observed, lines[:CARD_LINES], at, written_by="dream")


def _merge_equal(tx: Tx, collection: int, rows: list[Row[Any]]) -> list[Row[Any]]:
    """Keep the first of those that say the same, with the count and the messages of all; what is left. Each session
    keeps its own: it may be deleted."""
    same: dict[tuple[str, str, int | None], list[Row[Any]]] = {}
    for row in rows:
        same.setdefault((row.digest, row.level, row.session_id), []).append(row)
    repeated = {found[0].id: found for found in same.values() if len(found) > 1}
    if repeated:
        remove_conclusions(tx, [row.id for found in repeated.values() for row in found[1:]], collection)
    for row_id, found in repeated.items():
        sources = [source for row in found for source in json.loads(row.message_ids or "[]")]
        own = json.loads(found[0].message_ids or "[]")
        changes = {
            "times_derived": sum(row.times_derived for row in found),
            "message_ids": json.dumps([*dict.fromkeys(sources)]),
        }
        tx.execute(update(conclusions).where(conclusions.c.id == row_id).values(changes))
        link_messages(tx, row_id, {*sources} - {*own})
    return [found[0] for found in same.values()]
