"""Replies: recorded before sending, sent in order, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hermes.gateway.platform import Chat, Intake, SendLater, SendNever
from tests.gateway.core import FakePlatform, QuickClock, message, running_core
from tests.gateway.processes import appears, rows


class Moody(FakePlatform):
    """A platform that raises given errors for a text, a number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.moods: dict[str, list[Exception]] = {}
        self.tried: list[str] = []
        self.before_send = self._be_moody

    def _be_moody(self, _: Chat, text: str) -> None:
        self.tried.append(text)
        if self.moods.get(text):
            raise self.moods[text].pop(0)


@pytest.mark.contract("2.5")
async def test_delayed_message_keeps_later_ones_in_order(tmp_path: Path) -> None:
    platform = Moody()
    platform.moods["echo: one"] = [SendLater("too fast", 2.0), *[SendLater("still too fast")] * 99]
    async with running_core(tmp_path, platform=platform, clock=QuickClock(20)) as core:
        await platform.deliver(message("one"))
        await appears(tmp_path, "SELECT 1 FROM messages WHERE role = 'assistant'")
        await platform.deliver(message("two"))
        await platform.deliver(message("hi", "other"))
        await platform.until(lambda: platform.texts("other") == ["echo: hi"])
        assert core.platform.texts("7") == [], "another chat does not wait"
        platform.moods.clear()
        await platform.until(lambda: len(platform.sent) == 3)
        assert core.platform.texts("7") == ["echo: one", "echo: two"]


@pytest.mark.contract("2.5")
async def test_refused_message_becomes_a_dead_letter_and_the_next_is_sent(tmp_path: Path) -> None:
    platform = Moody()
    platform.moods["echo: one"] = [SendNever("the chat is gone")]
    async with running_core(tmp_path, platform=platform):
        await platform.deliver(message("one"))
        await appears(tmp_path, "SELECT 1 FROM hermes_queue WHERE queue = 'outbound' AND state = 'dead'")
        await platform.deliver(message("two"))
        await platform.until(lambda: platform.texts("7") == ["echo: two"])
    dead = rows(tmp_path, "SELECT reason FROM hermes_queue WHERE queue = 'outbound' AND state = 'dead'")
    assert dead == [("the chat is gone",)]


async def test_platform_defect_is_retried_and_then_a_dead_letter(tmp_path: Path) -> None:
    platform = Moody()
    platform.moods["echo: one"] = [RuntimeError("a defect")] * 2
    platform.moods["echo: two"] = [RuntimeError("a defect")] * 99
    async with running_core(tmp_path, platform=platform, clock=QuickClock(20)):
        await platform.deliver(message("one"))
        await platform.until(lambda: platform.texts("7") == ["echo: one"])
        await platform.deliver(message("two"))
        await appears(tmp_path, "SELECT 1 FROM hermes_queue WHERE queue = 'outbound' AND state = 'dead'")
    assert platform.tried.count("echo: two") == 5


class Losing(FakePlatform):
    """A platform that loses the response to each first try, and knows the keys of sent messages."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []

    async def send(self, chat: Chat, text: str, key: str = "") -> str:
        await super().send(chat, text, key)
        self.keys.append(key)
        raise SendLater("the answer is lost", 0.1)

    async def was_sent(self, chat: Chat, key: str, since: float) -> bool:
        return key in self.keys


@pytest.mark.contract("2.5")
async def test_message_whose_response_was_lost_is_not_sent_again(tmp_path: Path) -> None:
    platforms = {name: Losing() for name in ("home", "home made anew")}
    for name, platform in platforms.items():
        async with running_core(tmp_path / name, platform=platform):
            await platform.deliver(message("one", message_id="1"))
            await appears(tmp_path / name, "SELECT 1 FROM hermes_queue WHERE queue = 'outbound' AND state = 'done'")
        assert platform.texts("7") == ["echo: one"]
    first, second = (platform.keys for platform in platforms.values())
    assert first != second, "the second home counts its replies from one again"


@pytest.mark.contract("2.5", "P1")
async def test_unsent_reply_is_sent_after_the_restart(tmp_path: Path) -> None:
    platform = Moody()
    platform.moods["echo: one"] = [SendLater("down", 0.5)] * 99
    async with running_core(tmp_path, platform=platform):
        await platform.deliver(message("one"))
        await appears(tmp_path, "SELECT 1 FROM hermes_queue WHERE queue = 'outbound' AND reason = 'down'")
    assert platform.sent == []
    async with running_core(tmp_path) as core:
        await core.platform.until(lambda: core.platform.texts("7") == ["echo: one"])
    assert len(core.model.requests) == 0, "no second turn"


async def test_long_reply_is_split_in_order(tmp_path: Path) -> None:
    text = "\n\n".join(f"paragraph {number} " + "word " * 300 for number in range(6))
    async with running_core(tmp_path) as core:
        await core.platform.deliver(message(text))
        await core.platform.until(lambda: len(core.platform.sent) == 3)
        pieces = core.platform.texts("7")
    assert all(len(piece) <= 4000 for piece in pieces)
    assert " ".join(" ".join(pieces).split()) == " ".join(f"echo: {text}".split())


@pytest.mark.contract("2.5")
async def test_shutdown_sends_every_piece_of_a_started_reply(tmp_path: Path) -> None:
    class Gated(FakePlatform):
        begun, opened = asyncio.Event(), asyncio.Event()

        async def run(self, intake: Intake) -> None:
            try:
                await super().run(intake)
            finally:
                self.opened.set()

        async def send(self, chat: Chat, text: str, key: str = "") -> str:
            self.begun.set()
            await self.opened.wait()
            return await super().send(chat, text)

    platform = Gated()
    async with running_core(tmp_path, platform=platform) as core:
        await platform.deliver(message("word " * 2000))
        await platform.begun.wait()
        core.stopping.set()
    assert len(platform.sent) == 3
