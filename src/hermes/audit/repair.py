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


@dataclass(frozen=True, slots=True)
class _Look:
    """What was found, and SQLite's count of what others had committed by then."""

    others: int
    damage: list[Damage]


async def repair(places: Places, *, clock: Clock, lock_timeout: float) -> Repair:
    """Back the file up and mend it. Interrupted, it leaves each damage mended or untouched; call it again."""
    backup = back_up(places.state_file, now=clock.now(), lock_timeout=lock_timeout)
    crossings = find_crossings(read_log(places).operations)
    mended: list[Damage] = []
    async with await Store.open(
        places.state_file, clock=clock, lock_timeout=lock_timeout, old_routes_file=places.old_routes_file
    ) as store:
        seen = await store.look(lambda tx: _look(tx, places, crossings))
        for _ in range(PASSES):
            done = await _mend_all(store, places, crossings, seen)
            if not done:
                break
            mended += done
            seen = await store.look(lambda tx: _look(tx, places, crossings))
    return Repair(backup, tuple(mended), tuple(seen.damage))


async def _mend_all(store: Store, places: Places, crossings: Sequence[Crossing], seen: _Look) -> list[Damage]:
    """Mend one after another; what concerns a session that was mended just now is looked at again first."""
    done: list[Damage] = []
    touched: set[str] = set()
    for damage in seen.damage:
        if touched.isdisjoint(damage.sessions) and await _mend(store, places, crossings, seen.others, damage):
            done.append(damage)
            touched.update(damage.sessions)
    return done


async def _mend(store: Store, places: Places, crossings: Sequence[Crossing], others: int, damage: Damage) -> bool:
    """Mend it, if it is still there as it was found; whether it was. Where nobody else has written since, it is."""

    def mend(tx: Tx) -> bool:
        if _committed_by_others(tx) != others and not is_still_there(
            tx, read_case(tx, places.old_routes_file), crossings, damage
        ):
            return False
        _take_steps(tx, store, damage)
        return True

    return await store.write(mend)


def _look(tx: Tx, places: Places, crossings: Sequence[Crossing]) -> _Look:
    case = read_case(tx, places.old_routes_file)
    return _Look(_committed_by_others(tx), find_damage(tx, case, crossings))


def _committed_by_others(tx: Tx) -> int:
    return int(tx.execute("PRAGMA data_version").fetchone()[0])


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
