"""Who talks on chat platforms, as plugins are told."""

from __future__ import annotations

from collections.abc import Iterable

from hermes.db.engine import Tx
from hermes.memory.desk import Acquaintance
from hermes.store.people import everyone


def acquaintances(tx: Tx, allowed: Iterable[str]) -> list[Acquaintance]:
    """Everyone who is known or may talk."""
    return [
        Acquaintance(one.platform, one.user_id, one.name, one.is_owner, one.marked_at is not None)
        for one in everyone(tx, allowed)
    ]
