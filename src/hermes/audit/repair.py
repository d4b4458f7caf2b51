"""Mends what an audit found: a backup first, then one transaction per damage. Nothing is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes.audit.audit import Places, find_damage, is_still_there, read_log
from hermes.audit.backup import back_up
from hermes.audit.case import read_case
from hermes.audit.crossing import Crossing, find_crossings
from hermes.audit.damage import Bind, Damage, Detach, End, Hide, Reopen, Restore
from hermes.clock import Clock
from hermes.db.engine import Tx
from hermes.store.mended import hide_rows, restore_rows
from hermes.store.store import Store

PASSES = 20
"""Mending one damage may bring another to light; each pass looks again."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What became of it. `left` is what could not be mended, because someone else keeps changing it."""

    backup: Path
    mended: tuple[Damage, ...]
    left: tuple[Damage, ...]


async def repair(places: Places, *, clock: Clock, lock_timeout: float) -> Repair:
    """Back the file up and mend it. Interrupted, it leaves each damage mended or untouched; call it again."""
    backup = back_up(places.state_file, now=clock.now(), lock_timeout=lock_timeout)
    crossings = find_crossings(read_log(places).operations)
    mended: list[Damage] = []
    async with await Store.open(
        places.state_file, clock=clock, lock_timeout=lock_timeout, old_routes_file=places.old_routes_file
    ) as store:
        for _ in range(PASSES):
            found = await store.read(lambda tx: _look(tx, places, crossings))
            done = [damage for damage in found if await _mend(store, places, crossings, damage)]
            mended += done
            if not done:
                break
        left = await store.read(lambda tx: _look(tx, places, crossings))
    return Repair(backup, tuple(mended), tuple(left))


async def _mend(store: Store, places: Places, crossings: Sequence[Crossing], damage: Damage) -> bool:
    """Mend it, if it is still there as it was found; whether it was."""

    def mend(tx: Tx) -> bool:
        if not is_still_there(tx, read_case(tx, places.old_routes_file), crossings, damage):
            return False
        _take_steps(tx, store, damage)
        return True

    return await store.write(mend)


def _look(tx: Tx, places: Places, crossings: Sequence[Crossing]) -> list[Damage]:
    return find_damage(tx, read_case(tx, places.old_routes_file), crossings)


def _take_steps(tx: Tx, store: Store, damage: Damage) -> None:
    now = store.clock.now()
    for step in damage.steps:
        match step:
            case Bind(key, session_id):
                store.routes.bind(tx, key, session_id, now=now)
            case End(session_id, reason):
                store.sessions.end(tx, session_id, reason, now=now)
            case Reopen(session_id):
                store.sessions.reopen(tx, session_id)
            case Detach(session_id):
                store.sessions.detach(tx, session_id)
            case Hide(message_ids):
                hide_rows(tx, message_ids, damage.code, now=now)
            case Restore(message_ids):
                restore_rows(tx, message_ids, damage.code, now=now)
