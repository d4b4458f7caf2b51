"""Discord and Slack through a whole gateway: turns, and people with the same id on several platforms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.bot_api import TOKEN, BotApi, Person
from tests.gateway.chat_platforms import PlatformName, running
from tests.gateway.processes import PlatformGateway, scripted_model, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


@pytest.mark.parametrize("name", ["discord", "slack"])
@pytest.mark.contract("10.2")
def test_people_are_answered_in_direct_chats_and_channels(name: PlatformName, tmp_path: Path) -> None:
    with running(name) as platform, scripted_model() as model:
        gateway = PlatformGateway(tmp_path / "home", model, platform.settings)
        with gateway:
            wait_until(lambda: gateway.status().get(name, "").startswith("ok"))
            platform.say(0, "hello from Ann")
            platform.say_in_hall(1, "hello from the hall")
            wait_until(lambda: platform.texts(0) == ["hello from Ann"])
            wait_until(lambda: platform.server.texts(platform.hall))  # type: ignore[arg-type]
            platform.server.cut()
            platform.replay()
            platform.say(0, "/title Ann's")
            wait_until(lambda: len(platform.texts(0)) == 2)
            gateway.wait_sent()
            gateway.stop()
        assert "hello from the hall" in platform.server.texts(platform.hall)[0]  # type: ignore[arg-type]
        said = gateway.rows("SELECT content FROM messages WHERE role = 'user' ORDER BY content")
        assert said == [("hello from Ann",), ("hello from the hall",)], "what is told again is said once"
        kinds = gateway.rows("SELECT source, chat_type FROM sessions ORDER BY chat_type")
        assert kinds == [(name, "dm"), (name, "group")]


def test_same_id_on_three_platforms_is_three_people(tmp_path: Path) -> None:
    with (
        running("discord", ids=(333, None)) as discord,
        running("slack", ids=(333, None)) as slack,
        BotApi() as api,
        scripted_model() as model,
    ):
        ann = Person(333, "Ann")
        api._chats.add(333)
        telegram = {"telegram.token": TOKEN, "telegram.base_url": api.base_url}
        gateway = PlatformGateway(tmp_path / "home", model, {**discord.settings, **slack.settings, **telegram})
        with gateway:
            wait_until(lambda: [gateway.status().get(one, "")[:2] for one in ("discord", "slack")] == ["ok", "ok"])
            api.say(ann.dm, "my telegram secret is alpha", ann)
            discord.say(0, "my discord secret is beta")
            slack.say(0, "my slack secret is gamma")
            wait_until(lambda: api.texts(333) and discord.texts(0) and slack.texts(0))
            gateway.wait_sent()
            gateway.hermes("gateway", "people", "--me", "telegram:333")
            people = gateway.hermes("gateway", "people")
            gateway.stop()
        owners = gateway.rows("SELECT platform FROM hermes_people WHERE user_id = '333' AND is_owner = 1")
        assert owners == [("telegram",)]
        assert all(f"{platform}:333" in people for platform in ("telegram", "discord", "slack"))
        assert gateway.rows("SELECT COUNT(DISTINCT session_key) FROM sessions") == [(3,)]
