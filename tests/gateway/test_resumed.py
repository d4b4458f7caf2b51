"""A message whose turn a crash cut off, in a session where someone else has talked since."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.store.store import Store
from hermes.types import Draft
from tests.gateway.core import message, running_core
from tests.gateway.processes import rows
from tests.gateway.test_gateway_core import Gate, sessions

pytestmark = pytest.mark.contract("P1", "P2", "2.5")


async def _cut_off(home: Path, *texts: str) -> str:
    """A gateway that ends while it answers; the session."""
    gate = Gate()
    async with running_core(home, gate, gateway__drain=0.1) as core:
        await core.platform.deliver(message("wait"))
        await gate.asked.wait()
        for text in texts:
            await core.platform.deliver(message(text))
    [session] = sessions(home)
    return session


async def _say(home: Path, session: str, *drafts: Draft) -> None:
    """What another process stores in the session meanwhile."""
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=5.0) as store:
        await store.write(lambda tx: store.messages.append(tx, session, drafts, now=store.clock.now()))


@pytest.mark.parametrize("between", [[], [Draft("user", "and from the terminal?")]])
async def test_a_message_that_was_answered_meanwhile_gets_that_reply_and_no_second_one(
    tmp_path: Path, between: list[Draft]
) -> None:
    home = tmp_path / "home"
    session = await _cut_off(home, "afterwards")
    await _say(home, session, *between, Draft("assistant", "from elsewhere", finish_reason="stop"))
    await _say(home, session, Draft("user", "later"), Draft("assistant", "to later", finish_reason="stop"))
    async with running_core(home) as core:
        await core.platform.until(lambda: len(core.platform.sent) == 2)
        assert core.platform.texts("7") == ["from elsewhere", "echo: afterwards"]
        assert len(core.model.requests) == 1
    assert rows(home, "SELECT DISTINCT state FROM hermes_queue") == [("done",)]


async def test_a_message_with_only_a_broken_reply_is_answered(tmp_path: Path) -> None:
    home = tmp_path / "home"
    session = await _cut_off(home)
    await _say(home, session, Draft("assistant", "I was going to", finish_reason="error"))
    async with running_core(home) as core:
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        assert len(core.model.requests) == 1
    assert rows(home, "SELECT content FROM messages WHERE role = 'user'") == [("wait",)]
