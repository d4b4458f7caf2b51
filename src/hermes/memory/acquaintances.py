"""Who talks on chat platforms, as plugins are told."""

from __future__ import annotations

from collections.abc import Iterable

from hermes.db.engine import Tx
from hermes.memory.desk import Acquaintance
from hermes.store.people import everyone, named


def invited(allowed: Iterable[str]) -> list[Acquaintance]:
    """Those whom the settings alone let in: where there is no store yet, nobody else is known."""
    return [Acquaintance(platform, user_id) for platform, user_id in named(allowed)]


def acquaintances(tx: Tx, allowed: Iterable[str]) -> list[Acquaintance]:
    """Everyone who is known or may talk."""
    return [
        Acquaintance(one.platform, one.user_id, one.name, one.is_owner, one.marked_at is not None)
        for one in everyone(tx, allowed)
    ]
