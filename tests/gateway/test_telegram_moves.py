"""Groups that become supergroups: another id, the same conversation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.gateway.platform import Chat, Moved
from tests.gateway.bot_api import USERNAME, BotApi
from tests.gateway.core import Gate, message, running_core
from tests.gateway.processes import BotGateway, LoopbackModel, rows, said, scripted_model, sessions

pytestmark = pytest.mark.contract("1.2", "P2", "P3")


@pytest.fixture
def api() -> Iterator[BotApi]:
    with BotApi() as running:
        yield running


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    with scripted_model() as running:
        yield running


@pytest.mark.processes
@pytest.mark.parametrize("told", [(0,), (1,), (0, 1), (1, 0), (0, 0, 1, 1, 0)])
def test_conversation_of_a_group_continues_in_the_supergroup(
    api: BotApi, model: LoopbackModel, tmp_path: Path, told: tuple[int, ...]
) -> None:
    ann, group = api.person("Ann"), api.small_group("Garden")
    with BotGateway(tmp_path / "home", api, model) as gateway:
        api.say(group, f"@{USERNAME} roses", ann)
        api.until(lambda: api.texts(group.id) == ["[Ann] roses"])
        wide = api.upgrade(group)
        updates = api.move_updates(group, wide)
        for which in told:
            api.push(updates[which])
        api.say(wide, f"@{USERNAME} tulips", ann)
        api.until(lambda: api.texts(wide.id) == ["[Ann] tulips"])
        gateway.stop()
        assert model.asked()[-1] == ["[Ann] roses", "[Ann] tulips"]
        assert gateway.rows("SELECT session_key FROM sessions") == [(f"agent:main:telegram:group:{group.id}",)]


@pytest.mark.processes
def test_repeated_move_after_new_and_a_restart_changes_nothing(
    api: BotApi, model: LoopbackModel, tmp_path: Path
) -> None:
    ann, group = api.person("Ann"), api.small_group("Garden")
    gateway = BotGateway(tmp_path / "home", api, model)
    with gateway:
        api.say(group, f"@{USERNAME} roses", ann)
        api.until(lambda: api.texts(group.id) == ["[Ann] roses"])
        wide = api.upgrade(group)
        updates = api.move_updates(group, wide)
        number = api.push(updates[0])
        api.until(lambda: number in api.confirmed)
        gateway.wait_sent()
        gateway.kill()
    with gateway:
        api.push(updates[1])
        api.say(wide, "/new", ann)
        api.until(lambda: len(api.texts(wide.id)) == 1)
        for update in (*updates, *updates):
            api.push(update)
        api.say(wide, f"@{USERNAME} tulips", ann)
        api.until(lambda: api.texts(wide.id)[1:] == ["[Ann] tulips"])
        gateway.stop()
    assert model.asked()[-1] == ["[Ann] tulips"]
    old, new = [str(row[0]) for row in gateway.rows("SELECT id FROM sessions ORDER BY rowid")]
    assert said(gateway.home, old) == ["roses"]
    assert said(gateway.home, new) == ["tulips"]


@pytest.mark.processes
def test_access_carries_over_to_the_supergroup_and_its_topics_are_new(
    api: BotApi, model: LoopbackModel, tmp_path: Path
) -> None:
    ann, group, other = api.person("Ann"), api.small_group("Garden"), api.group("Elsewhere")
    settings = {"gateway.allow": f"telegram:{group.id}"}
    with BotGateway(tmp_path / "home", api, model, settings) as gateway:
        api.say(group, f"@{USERNAME} roses", ann)
        api.until(lambda: api.texts(group.id) == ["[Ann] roses"])
        wide = api.upgrade(group)
        api.push(api.move_updates(group, wide)[0])
        topic = type(wide)(wide.id, wide.type, wide.title, 7)
        api.say(other, f"@{USERNAME} may I?", ann)
        api.say(topic, f"@{USERNAME} weeds", ann)
        api.until(lambda: api.texts(wide.id, 7) == ["[Ann] weeds"])
        api.say(wide, f"@{USERNAME} tulips", ann)
        api.until(lambda: api.texts(wide.id) == ["[Ann] tulips"])
        gateway.stop()
    assert api.texts(other.id) == []
    assert [len(asked) for asked in model.asked()] == [1, 1, 2]
    keys = {key for (key,) in gateway.rows("SELECT session_key FROM sessions")}
    assert keys == {f"agent:main:telegram:group:{group.id}", f"agent:main:telegram:group:{wide.id}:7"}


@pytest.mark.processes
def test_move_discovered_by_a_reply_takes_effect(api: BotApi, model: LoopbackModel, tmp_path: Path) -> None:
    """Telegram keeps updates for a day: a gateway that was down for longer never gets the service messages."""
    ann, group = api.person("Ann"), api.small_group("Garden")
    gateway = BotGateway(tmp_path / "home", api, model)
    api.refuse("sendMessage", 500, "Internal Server Error", times=1000)
    with gateway:
        api.say(group, f"@{USERNAME} roses", ann)
        api.until(lambda: api.called("sendmessage"))
        gateway.kill()
    api.recover()
    wide = api.upgrade(group)
    with gateway:
        api.until(lambda: api.texts(wide.id) == ["[Ann] roses"])
        api.say(wide, f"@{USERNAME} tulips", ann)
        api.until(lambda: api.texts(wide.id)[1:] == ["[Ann] tulips"])
        gateway.stop()
    assert len(gateway.rows("SELECT 1 FROM sessions")) == 1


OLD, NEW = Chat("fake", "group", "-5"), Chat("fake", "group", "-1005")


async def test_messages_before_a_known_move_join_the_older_conversation_in_order(
    tmp_path: Path,
) -> None:
    gate = Gate()
    async with running_core(tmp_path, gate) as core:
        await core.platform.deliver(message("roses", "-5", kind="group"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        await core.platform.deliver(message("wait", "-1005", kind="group"))
        await gate.asked.wait()
        await core.platform.deliver(message("tulips", "-1005", kind="group"))
        await core.gateway.move(Moved(OLD, NEW))
        await core.platform.deliver(message("lilies", "-1005", kind="group"))
        await core.platform.until(lambda: core.platform.sent[-1][1].endswith("lilies"))
        assert core.asked() == ["[Ann] roses", "[Ann] tulips", "[Ann] lilies"]
        gate.opened.set()
        await core.platform.until(lambda: core.platform.sent[-1][1].endswith("wait"))
    old, early = sessions(tmp_path)
    assert said(tmp_path, old) == ["roses", "tulips", "lilies"]
    assert said(tmp_path, early) == ["wait"]
    assert rows(tmp_path, "SELECT id, end_reason FROM sessions WHERE end_reason IS NOT NULL") == [(early, "chat_moved")]
    assert rows(tmp_path, "SELECT DISTINCT session_id FROM hermes_routes") == [(old,)]


async def test_conversation_begun_in_the_supergroup_continues_there(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        await core.platform.deliver(message("tulips", "-1005", kind="group"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        for _ in range(2):
            await core.gateway.move(Moved(OLD, NEW))
            await core.gateway.move(Moved(NEW, OLD))  # nonsense
        await core.platform.deliver(message("lilies", "-1005", kind="group"))
        await core.platform.until(lambda: len(core.platform.sent) == 2)
        assert core.asked() == ["[Ann] tulips", "[Ann] lilies"]
    assert len(sessions(tmp_path)) == 1


async def test_key_of_the_new_id_leads_to_the_same_session_over_the_api(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        await core.platform.deliver(message("roses", "-5", kind="group"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        await core.gateway.move(Moved(OLD, NEW))
        keys = [f"agent:main:fake:group:{chat.chat_id}" for chat in (OLD, NEW)]
        asked = [message("hi", platform="api", kind="api") for _ in keys]
        found = [
            await core.gateway.receive(type(one)(one.chat, one.message_id, one.text, session_key=key))
            for one, key in zip(asked, keys, strict=True)
        ]
    assert {received.session_id for received in found} == set(sessions(tmp_path))
