"""Waiting, with an end."""

from __future__ import annotations

import asyncio

import pytest

from hermes.llm.patience import OutOfPatience, Patience


async def test_a_wait_ends_at_its_limit_or_when_the_total_is_used_up() -> None:
    patience = Patience(0.05)
    with pytest.raises(OutOfPatience) as single:
        await patience.wait(asyncio.Event().wait(), 0.01)
    with pytest.raises(OutOfPatience) as total:
        await patience.wait(asyncio.Event().wait(), 60)
    assert (single.value.seconds, total.value.seconds) == (0.01, 0.05)


async def test_only_waiting_uses_patience_up() -> None:
    patience = Patience(0.02)
    await asyncio.sleep(0.05)
    assert await patience.wait(asyncio.sleep(0, "there"), 60) == "there"


async def test_a_time_out_of_what_is_waited_for_stays_its_own() -> None:
    async def break_down() -> None:
        raise TimeoutError("the system gave up")

    with pytest.raises(TimeoutError, match="the system gave up"):
        await Patience(60).wait(break_down(), 60)
