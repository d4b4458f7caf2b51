"""People on chat platforms, as the commands of a memory provider need them. Blocks."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hermes.app import App, read_store, write_store
from hermes.db.engine import Tx
from hermes.gateway.platforms import switched_on
from hermes.memory.plugin_host import acquaintances, invited
from hermes.memory.provider import Acquaintance
from hermes.settings import ALLOW
from hermes.store.people import mark
from hermes.store.store import Store


def read_people(app: App) -> Sequence[Acquaintance]:
    """Return everyone who has talked or may talk on a platform."""
    allowed = app.settings.get(ALLOW)
    if not app.home.state_file.exists():
        return invited(allowed)
    return read_store(app, lambda _, tx: acquaintances(tx, allowed))


def mark_owner(app: App, people: Sequence[Acquaintance]) -> None:
    """Mark these accounts as the owner's."""

    def mark_all(_: Store, tx: Tx) -> None:
        for one in people:
            mark(tx, one.platform, one.user_id, is_owner=True, now=app.clock.now())

    write_store(app, mark_all)


class ProfileConsole(Struct, frozen=True):
    """The part of `hermes.memory.provider.PluginConsole` that depends on a profile alone."""

    app: App

    @property
    def platforms(self) -> Sequence[str]:
        return switched_on(self.app.settings)

    def people(self) -> Sequence[Acquaintance]:
        return read_people(self.app)

    def mark_owner(self, people: Sequence[Acquaintance]) -> None:
        mark_owner(self.app, people)
