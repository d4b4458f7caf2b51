"""Dreams: going over what is held. The floor merges conclusions that say the same and fills in a missing card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, select, update

from hermes.memory_server.db.database import JsonMap, Tx
from hermes.memory_server.db.tables import conclusions, workspaces
from hermes.memory_server.engine.cards import choose_lines, is_written_by_person, write_card
from hermes.memory_server.engine.conclusions import link_messages, lock_collection, message_ids, remove_conclusions
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.peers import get_peer
from hermes.memory_server.engine.sentence_kinds import SECRET
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.settings import resolve
from hermes.memory_server.engine.truth import LIVE
from hermes.memory_server.engine.workspaces import get_workspace
from hermes.memory_server.faults import Refused
from hermes.memory_server.ids import refuse_scopes


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
    live = (conclusions.c.collection_id == collection, LIVE)
    rows = list(tx.execute(select(conclusions).where(*live).order_by(conclusions.c.created_at, conclusions.c.id)))
    if payload["kind"] == "omni":
        rows = _merge_equal(tx, collection, rows, at)
    configuration = select(workspaces.c.configuration).where(workspaces.c.id == workspace_id)
    settings = resolve(tx.execute(configuration).scalar_one())
    if settings.create_card and not is_written_by_person(tx, observer, observed):
        held = frozenset(row.digest for row in rows if row.superseded_by is None and row.standing != SECRET)
        if lines := choose_lines([row.content for row in reversed(rows)], held):
            write_card(tx, workspace_id, observer, observed, lines, at, written_by="dream")


def _merge_equal(tx: Tx, collection: int, rows: list[Row[Any]], at: int) -> list[Row[Any]]:
    """Keep the first of those that say the same, with the count and the messages of all; what is left. Each session
    keeps its own: it may be deleted. So does each time that it held."""
    same: dict[tuple[str, str, int | None, int | None], list[Row[Any]]] = {}
    for row in rows:
        same.setdefault((row.digest, row.level, row.session_id, row.superseded_by), []).append(row)
    for found in same.values():
        if len(found) > 1:
            _merge_into(tx, found[0], found[1:], collection, at)
    return [found[0] for found in same.values()]


def _merge_into(tx: Tx, kept: Row[Any], others: Sequence[Row[Any]], collection: int, at: int) -> None:
    own, theirs = (set(message_ids(tx, [row.id for row in some])) for some in ([kept], others))
    remove_conclusions(tx, [row.id for row in others], collection, at)
    count = kept.times_derived + sum(row.times_derived for row in others)
    tx.execute(update(conclusions).where(conclusions.c.id == kept.id).values(times_derived=count))
    link_messages(tx, kept.id, sorted(theirs - own))
