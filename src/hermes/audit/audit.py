"""The read-only audit of one profile: its log and its store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hermes.audit.bindings import find_bindings, find_history, find_losses
from hermes.audit.case import Case, read_case, routes_of
from hermes.audit.crossing import Crossing, find_crossed, find_crossings
from hermes.audit.damage import Damage, Remark
from hermes.audit.doubles import find_doubles
from hermes.audit.log import LogAudit
from hermes.audit.unseen import find_unseen
from hermes.db.engine import Tx
from hermes.home import Home
from hermes.store.reading import lend_tables, open_unchanged


@dataclass(frozen=True, slots=True)
class StoreAudit:
    """The result of an audit: damage that can be repaired, and remarks."""

    damage: tuple[Damage, ...] = ()
    remarks: tuple[Remark, ...] = ()


def audit_store(home: Home, log: LogAudit, *, lock_timeout: float) -> StoreAudit:
    """Audit the store of a profile, of any version. Raises a StoreError if it cannot be read."""
    with open_unchanged(home.state_file, lock_timeout=lock_timeout) as tx:
        names = {row["name"] for row in tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"sessions", "messages"} <= names:
            return StoreAudit()
        lend_tables(tx)
        case = read_case(tx, home.old_routes_file)
        found = find_damage(tx, case, find_crossings(log.operations))
        remarks = [*find_losses(case), *find_unseen(tx, case, found)]
        reported = {session for damage in found for session in damage.sessions}
        reported |= {session for remark in remarks for session in remark.sessions}
        remarks += [*_find_differing(tx, home), *find_history(case, reported)]
        return StoreAudit(tuple(found), tuple(remarks))


def find_damage(tx: Tx, case: Case, crossings: Iterable[Crossing]) -> list[Damage]:
    """Return every damage in the order of repair: first whose messages these are, then where they belong."""
    return [
        *find_crossed(tx, case, crossings),
        *find_doubles(tx, case),
        *find_bindings(case),
    ]


def _find_differing(tx: Tx, home: Home) -> Iterator[Remark]:
    """Yield keys that lead to one session here and to another in another version."""
    for key, (ours, theirs) in sorted(routes_of(tx, home.old_routes_file).differing(tx).items()):
        detail = f"{key} leads to {ours} here and to {theirs} in the other hermes of this home"
        fix = "What was bound last counts here; say something in that chat with the one that you mean to use"
        yield Remark("routes-differ", (ours, theirs), detail, fix)
