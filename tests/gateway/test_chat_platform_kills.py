"""Discord and Slack with a gateway that is killed at any moment: no message is lost or stored twice."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from hermes.gateway.outbound import MIN_PREVIEW_CHARS
from tests.gateway.chat_platforms import ChatPlatform, PlatformName, running
from tests.gateway.processes import PlatformGateway, scripted_model, wait_until
from tests.scale import scale

pytestmark = pytest.mark.processes
KILLS_PER_HOME = 7


@pytest.mark.parametrize("name", ["discord", "slack"])
@pytest.mark.parametrize("seed", range(scale(3, 30)))
@pytest.mark.timeout(280)
@pytest.mark.contract("2.1")
def test_killed_gateway_loses_nothing_and_stores_nothing_twice(name: PlatformName, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    said: dict[int, list[str]] = {0: ["Ann: hello"], 1: ["Bob: hello"]}
    with running(name) as platform, scripted_model(then={"echo": True, "pause": chance.choice((0.0, 0.02))}) as model:
        gateway = PlatformGateway(tmp_path / "home", model, platform.settings)
        with gateway:
            wait_until(lambda: gateway.status().get(name, "").startswith("ok"))
            for number, texts in said.items():
                platform.say(number, texts[0])
            wait_until(lambda: len(gateway.said("assistant")) == 2)
            gateway.wait_sent()
            gateway.stop()
        for life in range(KILLS_PER_HOME):
            _say_some(platform, said, chance, f"before life {life}")
            killed = _kill_after_calls(gateway, platform, chance)
            with gateway:
                _say_some(platform, said, chance, f"in life {life}")
                killed.wait(chance.choice((3.0, 6.0)))
                platform.on_call(lambda: None)
        with gateway:
            for number in said:
                said[number].append(f"goodbye from {number}")
                platform.say(number, said[number][-1])
            wait_until(lambda: all(texts[-1] in gateway.said() for texts in said.values()))
            wait_until(lambda: not gateway.rows("SELECT 1 FROM hermes_queue WHERE state = 'waiting'"))
            gateway.stop()
        for number, texts in said.items():
            stored = gateway.rows(
                "SELECT m.role, m.content FROM messages m JOIN sessions s ON s.id = m.session_id "
                "WHERE s.session_key = ? ORDER BY m.id",
                platform.key(number),
            )
            assert [text for role, text in stored if role == "user"] == texts
            replies, shown = [str(text) for role, text in stored if role == "assistant"], platform.texts(number)
            assert all(reply in shown for reply in replies)
            short = [reply for reply in replies if len(reply) < MIN_PREVIEW_CHARS]
            assert all(shown.count(reply) == 1 for reply in short), "no preview has this text"
            assert shown[-1].endswith(texts[-1])


@pytest.mark.parametrize("name", ["discord", "slack"])
@pytest.mark.contract("2.5")
def test_reply_that_was_sent_but_not_recorded_appears_once(name: PlatformName, tmp_path: Path) -> None:
    with running(name) as platform, scripted_model() as model:
        gateway = PlatformGateway(tmp_path / "home", model, platform.settings)

        def kill_when_sent() -> None:
            if gateway.running and platform.texts(0):
                gateway.kill()

        platform.after_call(kill_when_sent)
        with gateway:
            wait_until(lambda: gateway.status().get(name, "").startswith("ok"))
            platform.say(0, "hello")
            wait_until(lambda: not gateway.running)
            waiting = gateway.rows("SELECT 1 FROM hermes_queue WHERE queue = 'outbound' AND state = 'waiting'")
            assert waiting, "it was not recorded as sent"
        platform.after_call(lambda: None)
        with gateway:
            gateway.wait_sent()
            platform.say(0, "bye")
            wait_until(lambda: "bye" in platform.texts(0))
            gateway.stop()
        assert platform.texts(0) == ["hello", "bye"]


def _say_some(platform: ChatPlatform, said: dict[int, list[str]], chance: random.Random, when: str) -> None:
    for count in range(chance.randrange(1, 4)):
        number = chance.randrange(2)
        said[number].append(f"{number} says {count} {when}")
        platform.say(number, said[number][-1])


def _kill_after_calls(gateway: PlatformGateway, platform: ChatPlatform, chance: random.Random) -> threading.Event:
    """Kill the gateway shortly after one of its next requests, then set the event."""
    killed, left, lock = threading.Event(), [chance.randrange(2, 12)], threading.Lock()

    def kill() -> None:
        gateway.kill()
        killed.set()

    def told() -> None:
        with lock:
            left[0] -= 1
            if left[0] == 0:
                threading.Timer(chance.choice((0.0, 0.002, 0.01, 0.05)), kill).start()

    platform.on_call(told)
    return killed
