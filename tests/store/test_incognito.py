"""Incognito messages, as a range or one by one, are hidden from every reader, however many there are."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.clock import SystemClock
from hermes.db.engine import Tx
from hermes.scope import OWNER
from hermes.store.hidden import FORGOTTEN, hide_rows
from hermes.store.store import Store
from hermes.types import Draft, Message
from tests.scale import scale

STEPS = st.lists(st.sampled_from(["say", "off", "on"]) | st.integers(0, 9), max_size=25)
"""A step: a message is stored, incognito begins or ends, or one message is left out."""


class Script:
    """Applies steps in one transaction, and knows which messages should be visible."""

    def __init__(self, store: Store, session: str) -> None:
        self._store = store
        self._session = session
        self._is_on = True
        self.said: list[Message] = []
        self.hidden: set[int] = set()

    def play(self, tx: Tx, steps: Sequence[str | int]) -> None:
        for step in steps:
            self._play_one(tx, step)

    def _play_one(self, tx: Tx, step: str | int) -> None:
        incognito = self._store.incognito
        if step == "say":
            drafts = [Draft("user", f"parrot {len(self.said)}")]
            (message,) = self._store.messages.append(tx, self._session, drafts, now=1.0)
            self.said.append(message)
            self.hidden |= set() if self._is_on else {message.id}
        elif step == "off":
            self._is_on = False
            incognito.begin(tx, self._session)
        elif step == "on":
            self._is_on = True
            incognito.end(tx, self._session)
        elif isinstance(step, int) and step < len(self.said):
            self.hidden.add(self.said[step].id)
            hide_rows(tx, [self.said[step].id], FORGOTTEN, now=1.0, hidden_from="memory")


@pytest.mark.contract("4.11")
@settings(max_examples=scale(20, 300))
@given(STEPS)
async def test_exactly_the_left_out_messages_are_hidden_in_any_order(steps: list[str | int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with await Store.open(Path(folder) / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
            session = (await store.create_session("cli")).id
            script = Script(store, session)
            await store.write(lambda tx: script.play(tx, steps))
            await store.index()
            left = {message.id for message in script.said} - script.hidden
            known = await store.read(lambda tx: store.incognito.remembered(tx, script.said))
            assert {message.id for message in known} == left
            hits = await store.read(lambda tx: store.search.related(tx, "parrot", OWNER, limit=50, roles=("user",)))
            assert {hit.message.id for hit in hits} == left
