"""Telegram end to end: a gateway process, a Bot API on loopback, a model process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from hermes.gateway.gateway import STATE_WORDS
from tests.gateway.bot_api import TOKEN, USERNAME, BotApi, units
from tests.gateway.processes import BotGateway, LoopbackModel, answering_model, scripted_model, wait_until
from tests.llm.loopback import Answer, chunk

pytestmark = pytest.mark.processes


@pytest.fixture
def api() -> Iterator[BotApi]:
    with BotApi() as running:
        yield running


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    with scripted_model() as running:
        yield running


@pytest.fixture
def gateway(tmp_path: Path, api: BotApi, model: LoopbackModel) -> Iterator[BotGateway]:
    with BotGateway(tmp_path / "home", api, model) as running:
        yield running
        assert TOKEN not in running.output()
        assert "Traceback" not in running.output(), running.output()


def test_refused_telegram_token_and_recovery_are_reported_at_once(
    tmp_path: Path, api: BotApi, model: LoopbackModel
) -> None:
    api.refuse("getMe", 401, "Unauthorized", times=2)
    with BotGateway(tmp_path / "home", api, model) as gateway:
        api.until(lambda: api.called("getupdates"))
        wait_until(
            lambda: f"gateway: telegram {STATE_WORDS['ok']}: " in gateway.output(), seconds=25.0
        )  # a poll takes 30
        told = [line for line in gateway.output().splitlines() if line.startswith("gateway: telegram ")]
    assert [line.partition(": ")[2].partition(": ")[0] for line in told] == [
        f"telegram {STATE_WORDS['failing']}",
        f"telegram {STATE_WORDS['ok']}",
    ]
    assert TOKEN not in gateway.output()


@pytest.mark.contract("1.2", "10.2")
def test_direct_chats_groups_and_topics_have_separate_sessions(api: BotApi, gateway: BotGateway) -> None:
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


@pytest.mark.contract("2.4")
def test_forty_messages_during_a_turn_join_the_next_one_in_order(api: BotApi, tmp_path: Path) -> None:
    answers = [{"says": {"text": "first"}}, {"says": {"text": "second"}}]
    with scripted_model(answers) as model, BotGateway(tmp_path / "home", api, model) as gateway:
        ann, bob = api.person("Ann"), api.person("Bob")
        group = api.group("Garden")
        model.hold()
        api.say(group, "/none of this is a command", ann)
        wait_until(model.asked)
        waiting = [f"@{USERNAME} m{number}" for number in range(40)]
        for number, text in enumerate(waiting):
            api.say(group, text, (ann, bob)[number % 2])
        wait_until(lambda: gateway.rows("SELECT count(*) FROM hermes_queue WHERE queue = 'inbox'") == [(41,)])
        model.go_on()
        api.until(lambda: api.texts(group.id) == ["first", "second"])
        _, joined = model.asked()
        names = ("Ann", "Bob")
        assert joined == [
            "[Ann] /none of this is a command",
            *(f"[{names[number % 2]}] m{number}" for number in range(40)),
        ]
        assert len(gateway.said()) == 41
        gateway.stop()


@pytest.mark.contract("2.5")
def test_telegram_outage_loses_nothing_and_keeps_each_chats_order(api: BotApi, gateway: BotGateway) -> None:
    ann, bob = api.person("Ann"), api.person("Bob")
    api.refuse("sendMessage", 429, "Too Many Requests: retry after 1", retry_after=1)
    api.refuse("sendMessage", 500, "Internal Server Error", times=2)
    api.lose("sendMessage", times=2)
    api.lose("getUpdates", times=2)
    for number in range(4):
        api.say(ann.dm, f"/title a{number}", ann)
        api.say(bob.dm, f"/title b{number}", bob)
    api.until(lambda: len(api.texts(ann.dm.id)) == 4 and len(api.texts(bob.dm.id)) == 4, seconds=60)
    assert api.texts(ann.dm.id) == [f"Title: a{number}" for number in range(4)]
    assert api.texts(bob.dm.id) == [f"Title: b{number}" for number in range(4)]
    gateway.stop()


def test_retry_waits_as_long_as_telegram_asks(api: BotApi, gateway: BotGateway) -> None:
    ann = api.person("Ann")
    api.refuse("sendMessage", 429, "Too Many Requests: retry after 3", retry_after=3)
    api.say(ann.dm, "/title x", ann)
    api.until(lambda: api.texts(ann.dm.id))
    first, second = api.called("sendmessage")
    assert second.at - first.at >= 2.9
    gateway.stop()


def test_person_who_blocked_the_bot_delays_nobody_else(api: BotApi, gateway: BotGateway) -> None:
    ann, bob = api.person("Ann"), api.person("Bob")
    api.leave(ann.id)
    api.say(ann.dm, "/title x", ann)
    api.say(bob.dm, "/title y", bob)
    api.until(lambda: api.texts(bob.dm.id) == ["Title: y"])
    wait_until(lambda: gateway.rows("SELECT 1 FROM hermes_queue WHERE queue = 'outbound' AND state = 'dead'"))
    assert api.texts(ann.dm.id) == []
    gateway.stop()


def test_stranger_gets_one_explanation_and_access_with_the_code(
    api: BotApi, tmp_path: Path, model: LoopbackModel
) -> None:
    with BotGateway(tmp_path / "home", api, model, {"gateway.allow": ""}) as gateway:
        eve, friend = api.person("Eve"), api.person("Fay")
        first = api.push({"message": api.message(eve.dm, eve, text="hello")})
        api.push({"message": api.message(eve.dm, eve, voice={"file_id": "a", "file_unique_id": "b", "duration": 1})})
        api.say(api.group("Garden"), f"@{USERNAME} hello", friend)
        last = api.push({"message": api.message(eve.dm, eve, text="anyone?")})
        api.until(lambda: {first, last} <= api.confirmed and api.texts(eve.dm.id))
        [refusal] = api.texts(eve.dm.id)
        code = refusal.split("hermes gateway pair ")[1].split()[0]
        assert "may talk now" in gateway.hermes("gateway", "pair", code)
        api.say(eve.dm, "and now?", eve)
        api.until(lambda: api.texts(eve.dm.id) == [refusal, "and now?"])
        assert gateway.said() == ["and now?"]
        gateway.stop()


def test_everyone_may_talk_in_an_allowed_group(api: BotApi, tmp_path: Path, model: LoopbackModel) -> None:
    group, other, ann = api.group("Garden"), api.group("Elsewhere"), api.person("Ann")
    with BotGateway(tmp_path / "home", api, model, {"gateway.allow": f"telegram:{group.id}"}) as gateway:
        api.say(other, f"@{USERNAME} hello", ann)
        api.say(group, f"@{USERNAME} hello", ann)
        api.until(lambda: api.texts(group.id) == ["[Ann] hello"])
        assert api.texts(other.id) == []
        gateway.stop()


def test_previews_pause_during_a_rate_limit_and_the_reply_still_arrives(api: BotApi, tmp_path: Path) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 5
    answers = [{"says": {"text": text, "piece": 2, "pause": 0.05}}]
    with scripted_model(answers) as model, BotGateway(tmp_path / "home", api, model) as gateway:
        ann = api.person("Ann")
        api.refuse("sendMessage", 429, "Too Many Requests: retry after 3", retry_after=3)
        api.say(ann.dm, "tell", ann)
        api.until(lambda: api.texts(ann.dm.id) == [text.strip()])
        first, second, *_ = api.called("sendmessage")
        assert second.at - first.at >= 2.9
        gateway.stop()


def test_long_reply_with_emoji_is_split_to_telegrams_limit(api: BotApi, tmp_path: Path) -> None:
    words = [f"{'🧑‍🚀🎉' * 5}{number}" for number in range(900)]
    answers = [{"says": {"text": " ".join(words), "piece": 500}}]
    with scripted_model(answers) as model, BotGateway(tmp_path / "home", api, model) as gateway:
        ann = api.person("Ann")
        api.say(ann.dm, "celebrate", ann)
        api.until(lambda: " ".join(api.texts(ann.dm.id)) == " ".join(words))
        assert all(units(text) <= 4096 for text in api.texts(ann.dm.id))
        assert len(api.texts(ann.dm.id)) < 10
        gateway.stop()


def tell_in_parts(*parts: str) -> tuple[Answer, list[threading.Event]]:
    """Return a reply in parts, each but the first sent when the event before it is set."""
    seen = [threading.Event() for _ in parts[1:]]
    rest = [step for event, part in zip(seen, parts[1:], strict=True) for step in (event, chunk({"content": part}))]
    return Answer(chunks=[chunk({"content": parts[0]}), *rest, chunk({}, "stop")]), seen


def test_preview_is_edited_once_a_second_and_ends_as_the_reply(api: BotApi, tmp_path: Path) -> None:
    parts = ["The quick brown fox jumps over the lazy dog.", " It does so again.", " And again."]
    answer, seen = tell_in_parts(*parts)
    with answering_model(answer) as model, BotGateway(tmp_path / "home", api, model) as gateway:
        ann = api.person("Ann")
        api.say(ann.dm, "tell", ann)
        for shown, event in zip(accumulate(parts), seen, strict=False):
            api.until(lambda so_far=shown: api.texts(ann.dm.id) == [so_far])  # type: ignore[misc]
            event.set()
        api.until(lambda: api.texts(ann.dm.id) == ["".join(parts)])
        assert api.called("sendchataction")
        assert api.sent[0].texts == [*accumulate(parts)]
        edits = [call.at for call in [*api.called("sendmessage"), *api.called("editmessagetext")]]
        assert all(after - before >= 0.9 for before, after in pairwise(edits[:-1]))
        gateway.stop()


def test_reply_whose_preview_was_deleted_is_sent_again(api: BotApi, tmp_path: Path) -> None:
    parts = ["The quick brown fox jumps over the lazy dog.", " It does so again."]
    answer, [deleted] = tell_in_parts(*parts)
    with answering_model(answer) as model, BotGateway(tmp_path / "home", api, model) as gateway:
        ann = api.person("Ann")
        api.say(ann.dm, "tell", ann)
        api.until(lambda: api.sent)
        api.sent.clear()
        deleted.set()
        api.until(lambda: api.texts(ann.dm.id) == ["".join(parts)])
        gateway.stop()
