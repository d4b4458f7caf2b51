"""Telegram from outside: a gateway process, a Bot API on loopback, a model process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.bot_api import TOKEN, USERNAME, BotApi
from tests.gateway.hosts import GatewayProcess, ModelProcess


@pytest.fixture
def api() -> Iterator[BotApi]:
    with BotApi() as running:
        yield running


@pytest.fixture
def model(tmp_path: Path) -> Iterator[ModelProcess]:
    with ModelProcess(tmp_path) as running:
        yield running


@pytest.fixture
def gateway(tmp_path: Path, api: BotApi, model: ModelProcess) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path / "home", api, model) as running:
        yield running
        assert TOKEN not in running.output()
        assert "Traceback" not in running.output(), running.output()


@pytest.mark.contract("1.2", "10.2")
def test_people_talk_in_direct_chats_groups_and_topics_each_in_a_session_of_its_own(
    api: BotApi, gateway: GatewayProcess
) -> None:
    ann, bob = api.person("Ann"), api.person("Bob")
    group, topic = api.group("Garden"), api.group("Forum", topic=7)
    api.say(ann.dm, "hello", ann)
    api.say(group, f"@{USERNAME} what grows here?", bob)
    api.say(topic, f"/status@{USERNAME}", ann)
    api.say(topic, f"and here, @{USERNAME}?", ann)
    api.until(lambda: api.texts(ann.dm.id) == ["hello"])
    api.until(lambda: api.texts(group.id) == ["[Bob] what grows here?"])
    api.until(lambda: len(api.texts(topic.id, 7)) == 2)
    assert api.texts(topic.id, 7)[0].startswith("session ")
    assert api.texts(topic.id, 7)[1] == "[Ann] and here?"
    keys = {key for (key,) in gateway.rows("SELECT session_key FROM sessions")}
    assert keys == {
        f"agent:main:telegram:dm:{ann.id}",
        f"agent:main:telegram:group:{group.id}",
        f"agent:main:telegram:group:{topic.id}:7",
    }
    gateway.stop()
    assert "telegram" not in gateway.status()
