"""Time budgets of waits."""

from __future__ import annotations

import asyncio

import pytest

from hermes.llm.connection import BudgetExceeded, TimeBudget


async def test_a_wait_ends_at_its_limit_or_when_the_total_is_used_up() -> None:
    budget = TimeBudget(0.05)
    with pytest.raises(BudgetExceeded) as single:
        await budget.wait(asyncio.Event().wait(), 0.01)
    with pytest.raises(BudgetExceeded) as total:
        await budget.wait(asyncio.Event().wait(), 60)
    assert (single.value.seconds, total.value.seconds) == (0.01, 0.05)


async def test_only_waiting_uses_up_the_budget() -> None:
    budget = TimeBudget(0.02)
    await asyncio.sleep(0.05)
    assert await budget.wait(asyncio.sleep(0, "there"), 60) == "there"


async def test_a_timeout_raised_inside_the_wait_passes_through() -> None:
    async def break_down() -> None:
        raise TimeoutError("the system gave up")

    with pytest.raises(TimeoutError, match="the system gave up"):
        await TimeBudget(60).wait(break_down(), 60)
