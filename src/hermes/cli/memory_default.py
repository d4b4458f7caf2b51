"""A memory provider that nobody chose is told of once in each home."""

from __future__ import annotations

from hermes.app import App
from hermes.db.engine import Tx
from hermes.memory.registry import NONE
from hermes.settings import PROVIDER
from hermes.store.memory_rows import get_value, set_value
from hermes.store.store import Store

KIND, KEY = "told", "default"
NOTICE = (
    "Memory is on: {} keeps what is said, on this machine alone, and recalls it in later conversations. `hermes memory "
    "status` shows it; `hermes config set memory.provider none` switches it off."
)


async def take_default_notice(app: App, store: Store) -> str | None:
    """What to tell of a provider that is there by default, the first time; None ever after, and of one that was
    chosen."""
    name = app.settings.get(PROVIDER)
    if name == NONE or app.settings.is_given(PROVIDER):
        return None
    if await store.read(lambda tx: get_value(tx, name, KIND, KEY)):
        return None

    def take(tx: Tx) -> bool:
        was_told = bool(get_value(tx, name, KIND, KEY))
        set_value(tx, name, KIND, KEY, True)
        return was_told

    return None if await store.write(take) else NOTICE.format(name.capitalize())
