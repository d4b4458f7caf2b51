"""The whole audit of one profile: log and store, nothing changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hermes.audit.bindings import History, Loss, find_bindings, find_history, find_losses
from hermes.audit.case import Case, read_case, routes_of
from hermes.audit.crossing import Crossing, find_crossed, find_crossings
from hermes.audit.damage import Damage
from hermes.audit.doubles import find_doubles
from hermes.audit.log import LogAudit, audit_log
from hermes.audit.unseen import Unseen, find_unseen
from hermes.db.engine import Tx
from hermes.store.reading import lend_tables, open_unchanged


@dataclass(frozen=True, slots=True)
class ProfileFiles:
    """The files of a profile that an audit reads."""

    state_file: Path
    old_routes_file: Path
    log_file: Path


@dataclass(frozen=True, slots=True)
class StoreAudit:
    """What is wrong, what only was, what is lost for good or left behind, and keys that mean one session to us (the
    first) and another one to another version."""

    damage: tuple[Damage, ...] = ()
    history: tuple[History, ...] = ()
    losses: tuple[Loss, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    differing: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def audit_store(places: ProfileFiles, log: LogAudit, *, lock_timeout: float) -> StoreAudit:
    """Judge a file that exists, of any version. Raises a StoreError when it cannot be read."""
    with open_unchanged(places.state_file, lock_timeout=lock_timeout) as tx:
        names = {row["name"] for row in tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"sessions", "messages"} <= names:
            return StoreAudit()
        lend_tables(tx)
        case = read_case(tx, places.old_routes_file)
        found = find_damage(tx, case, find_crossings(log.operations))
        differing = routes_of(tx, places.old_routes_file).differing(tx)
        losses, unseen = tuple(find_losses(case)), tuple(find_unseen(tx, case, found))
        told = {session for damage in found for session in damage.sessions}
        told |= {session for loss in losses for session in (loss.before, loss.today)}
        told |= {session for left in unseen for session in (left.before, left.today)}
        return StoreAudit(tuple(found), tuple(find_history(case, told)), losses, unseen, differing)


def find_damage(tx: Tx, case: Case, crossings: Iterable[Crossing]) -> list[Damage]:
    """Every damage, in the order in which it should be mended: first whose words these are, then where they go."""
    return [
        *find_crossed(tx, case, crossings),
        *find_doubles(tx, case),
        *find_bindings(case),
    ]


def read_log(places: ProfileFiles) -> LogAudit:
    return audit_log(places.log_file)
