"""A clock that is set while a message is handled.

Forward: the lane stays leased, and nothing is done twice. Back: no wait lasts until the clock reaches its old time.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.gateway.platform import Chat
from tests.gateway.core import FakePlatform, Gate, message, running_core
from tests.gateway.processes import rows


class JumpingClock(SystemClock):
    """A clock that tests set."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@pytest.mark.contract("2.3", "P2")
async def test_lane_whose_lease_only_looks_expired_is_not_taken_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate, clock = Gate(), JumpingClock()
    with caplog.at_level(logging.WARNING, "hermes"):
        async with running_core(tmp_path, gate, clock=clock) as core:
            await core.platform.deliver(message("wait"))
            await gate.asked.wait()
            clock.ahead = 3600.0
            await core.platform.deliver(message("hello", chat_id="8"))  # the lanes look for work
            gate.opened.set()
            await core.platform.until(lambda: len(core.platform.sent) == 2)
    assert sorted(core.platform.sent) == [("7", "echo: wait"), ("8", "echo: hello")]
    assert len(core.model.requests) == 2
    assert "taken over" not in caplog.text
    assert rows(tmp_path, "SELECT DISTINCT state, crashes FROM hermes_queue") == [("done", 0)]


class SlowPlatform(FakePlatform):
    """A platform that holds messages until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.sending, self.may_send = asyncio.Event(), asyncio.Event()

    async def send(self, chat: Chat, text: str, key: str = "") -> str:
        self.sending.set()
        await self.may_send.wait()
        return await super().send(chat, text)


@pytest.mark.contract("2.5", "P2")
async def test_message_that_is_being_sent_is_not_sent_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, platform = JumpingClock(), SlowPlatform()
    async with running_core(tmp_path, clock=clock, platform=platform) as core:
        await platform.deliver(message("hello"))
        await platform.sending.wait()
        clock.ahead = 3600.0
        platform.sending.clear()
        await platform.deliver(message("hello", chat_id="8"))  # the delivery looks for work
        await platform.sending.wait()
        platform.may_send.set()
        await platform.until(lambda: len(core.platform.sent) == 2)
    assert sorted(platform.sent) == [("7", "echo: hello"), ("8", "echo: hello")]
    assert "took over" not in caplog.text


@pytest.mark.contract("2.4")
async def test_waiting_messages_are_answered_although_the_clock_is_set_back(tmp_path: Path) -> None:
    gate, clock = Gate(), JumpingClock()
    async with running_core(tmp_path, gate, clock=clock) as core:
        await core.platform.deliver(message("wait"))
        await gate.asked.wait()
        await core.platform.deliver(message("second"))
        clock.ahead = -3600.0
        await core.platform.deliver(message("third"))
        gate.opened.set()
        await core.platform.until(lambda: len(core.platform.sent) == 2)
    assert core.platform.texts("7") == ["echo: wait", "echo: second + third"]
