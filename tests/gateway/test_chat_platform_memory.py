"""The libraries of Discord and Slack over many messages: neither memory nor open handles grow."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.gateway.platform import Chat, Inbound, Platform
from hermes.gateway.platforms import slack
from hermes.gateway.platforms.discord import Discord, DiscordOptions
from hermes.gateway.platforms.slack import Slack, SlackOptions
from tests.gateway import discord_server, slack_server
from tests.gateway.chat_platforms import ChatPlatform, PlatformName, running
from tests.gateway.intake import RecordingIntake, until
from tests.scale import scale

HANDLES = Path("/proc/self/fd")
MESSAGES = scale(100, 2000)
"""Number of measured messages, after as many that fill the caches."""
MAX_GROWTH_BYTES_PER_MESSAGE = 500
"""Less than one message: its text alone is larger."""
TEXT = "stamps from Malta and from Gozo " * 20


@dataclass
class _CountingDesk(RecordingIntake):
    """An intake that counts messages and keeps none."""

    last: Inbound | None = None
    seen: int = 0
    written: dict[str, str] = field(default_factory=dict)

    async def receive(self, message: Inbound) -> None:
        self.seen, self.last = self.seen + 1, message

    async def report(self, part: str, state: str, detail: str) -> None:
        self.reports[:] = [(state, detail)]


@pytest.mark.stress
@pytest.mark.skipif(sys.platform != "linux", reason="open handles are counted in /proc")
@pytest.mark.parametrize("name", ["discord", "slack"])
@pytest.mark.timeout(600)
@pytest.mark.contract("10.2")
async def test_memory_and_handles_are_flat_over_many_messages(
    name: PlatformName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack, "PING_SECONDS", 0.2)
    tracemalloc.start()
    with running(name) as platform:
        bot, intake = _bot_of(platform), _CountingDesk()
        task = asyncio.create_task(bot.run(intake))
        try:
            await until(lambda: intake.reports and intake.reports[-1][0] == "ok")
            await _talk(platform, bot, intake, MESSAGES)
            before_bytes, before_handles = _used(platform)
            await _talk(platform, bot, intake, MESSAGES)
            after_bytes, after_handles = _used(platform)
        finally:
            tracemalloc.stop()
            task.cancel()
            await asyncio.wait({task})
            await bot.close()
    assert after_handles <= before_handles + 2
    assert (after_bytes - before_bytes) / MESSAGES < MAX_GROWTH_BYTES_PER_MESSAGE


def _bot_of(platform: ChatPlatform) -> Platform:
    server = platform.server
    if isinstance(server, discord_server.DiscordServer):
        return Discord(DiscordOptions(discord_server.TOKEN, server.base_url), SystemClock())
    return Slack(SlackOptions(slack_server.BOT_TOKEN, slack_server.APP_TOKEN, server.base_url), SystemClock())


async def _talk(platform: ChatPlatform, bot: Platform, intake: _CountingDesk, count: int) -> None:
    """Send messages, each of which is answered; the connection is cut in the middle."""
    for number in range(count):
        seen = intake.seen
        if number == count // 2:
            platform.server.cut()
        say: Callable[[int, str], None] = platform.say_in_hall if number % 3 == 0 else platform.say
        say(number % 2, f"{number} {TEXT}")
        await until(lambda seen=seen: intake.seen > seen)  # type: ignore[misc]
        assert intake.last is not None
        await _answer(bot, intake.last.chat)


async def _answer(bot: Platform, chat: Chat) -> None:
    await bot.send(chat, TEXT)


def _used(platform: ChatPlatform) -> tuple[int, int]:
    """Return the bytes and handles in use, without the loopback server's copies of messages."""
    platform.server.forget_messages()
    gc.collect()
    return tracemalloc.get_traced_memory()[0], len(list(HANDLES.iterdir()))
