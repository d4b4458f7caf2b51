"""Whether the pages of a file fit together."""

from __future__ import annotations

from hermes.memory_server.db.database import Tx


def find_damage(tx: Tx) -> str | None:
    """The first thing that does not fit, after a look at every page; None when all does."""
    found = str(tx.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
    return None if found == "ok" else found
