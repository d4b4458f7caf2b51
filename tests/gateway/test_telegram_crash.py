"""SIGKILL at any moment: every confirmed update is answered, once in the store, in order."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from hermes.db.queue import GIVEN_UP, MAX_CRASHES, MIN_SUSPECT_CRASHES
from tests.gateway.bot_api import BotApi, Call
from tests.gateway.processes import BotGateway, scripted_model, wait_until
from tests.scale import scale

pytestmark = pytest.mark.processes

POISONED = """
import os, runpy, signal, sys
from hermes.db import worker
from hermes.llm.openai_compatible import OpenAICompatible

stream = OpenAICompatible.stream

def stream_or_die(self, request):
    if "poison" in str(request.messages[-1]["content"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return stream(self, request)

OpenAICompatible.stream = stream_or_die
worker.backoff = lambda *_, **__: 0.1  # the pauses between tries
sys.argv = ["hermes", "gateway", "run"]
runpy.run_module("hermes", run_name="__main__")
"""
"""A gateway that is killed whenever its model gets a message about poison."""

MOMENTS = ("getupdates", "sendmessage", "editmessagetext", "sendchataction", "any")


class Killer:
    """Kills a gateway a chosen time after a certain call, or after any event."""

    def __init__(self, gateway: BotGateway, chance: random.Random) -> None:
        self._gateway = gateway
        self._chance = chance
        self._method = chance.choice(MOMENTS)
        self._skip = chance.randrange(4)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self.done = threading.Event()

    def look(self, call: Call) -> None:
        """Called with every call before its effect; the call waits, so the kill may come before, in or after it."""
        with self._lock:
            if self.done.is_set() or self._method not in ("any", call.method):
                return
            self._skip -= 1
            if self._skip < 0:
                self._timer = threading.Timer(self._chance.choice((0.0, 0.002, 0.01, 0.05, 0.3)), self._gateway.kill)
                self._timer.start()
                self.done.set()

    def end(self, timeout_seconds: float) -> None:
        """Wait for the moment with a timeout, then kill the gateway anyway."""
        self.done.wait(timeout_seconds)
        with self._lock:
            self.done.set()
        if self._timer is not None:
            self._timer.join()
        self._gateway.kill()


@pytest.mark.stress
@pytest.mark.contract("2.1", "2.2", "2.5")
@pytest.mark.parametrize("seed", range(scale(3, 200)))
@pytest.mark.timeout(120)
def test_killed_gateway_loses_no_update_and_stores_none_twice(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    slow = {"echo": True, "pause": chance.choice((0.0, 0.02, 0.1))}
    with BotApi() as api, scripted_model(then=slow) as model:
        people = [api.person("Ann"), api.person("Bob")]
        gateway = BotGateway(tmp_path / "home", api, model)
        said: dict[int, list[str]] = {person.id: [] for person in people}
        for life in range(2):
            killer = Killer(gateway, chance)
            api.on_call = killer.look
            with gateway:
                for number in range(chance.randrange(1, 6)):
                    person = chance.choice(people)
                    text = f"{person.name} says in life {life} as number {number} something that takes a while to say"
                    said[person.id].append(text)
                    api.say(person.dm, text, person)
                killer.end(chance.choice((1.0, 6.0)))
        api.on_call = lambda _: None
        with gateway:
            for person in people:
                said[person.id].append(f"{person.name}: goodbye")
                api.say(person.dm, f"{person.name}: goodbye", person)
            api.until(
                lambda: all(api.texts(p.id) and api.texts(p.id)[-1].endswith(": goodbye") for p in people), seconds=60
            )
            gateway.stop()
        _check(gateway, api, said)


def _check(gateway: BotGateway, api: BotApi, said: dict[int, list[str]]) -> None:
    for chat_id, texts in said.items():
        key = f"agent:main:telegram:dm:{chat_id}"
        rows = gateway.rows(
            "SELECT m.role, m.content FROM messages m JOIN sessions s ON s.id = m.session_id "
            f"WHERE s.session_key = '{key}' ORDER BY m.id"
        )
        assert [content for role, content in rows if role == "user"] == texts
        replies = [str(content) for role, content in rows if role == "assistant" and content]
        shown = iter(api.texts(chat_id))
        assert all(any(text == reply for text in shown) for reply in replies), (replies, api.texts(chat_id))
    left = gateway.rows("SELECT queue, key, state, reason FROM hermes_queue WHERE state != 'done'")
    assert left == []


@pytest.mark.contract("2.5")
def test_recorded_but_unsent_reply_is_sent_after_a_crash(tmp_path: Path) -> None:
    with BotApi() as api, scripted_model() as model:
        ann = api.person("Ann")
        gateway = BotGateway(tmp_path / "home", api, model)
        api.refuse("sendMessage", 500, "Internal Server Error", times=1000)
        with gateway:
            api.say(ann.dm, "hello", ann)
            api.until(lambda: api.called("sendmessage"))
            gateway.kill()
        assert gateway.said("assistant") == ["hello"]
        api.recover()
        with gateway:
            api.until(lambda: api.texts(ann.dm.id) == ["hello"])
            gateway.stop()
        with gateway:
            api.say(ann.dm, "/title x", ann)
            api.until(lambda: len(api.texts(ann.dm.id)) == 2)
            gateway.stop()
        assert api.texts(ann.dm.id) == ["hello", "Title: x"]
        assert len(model.asked()) == 1


@pytest.mark.contract("2.5")
def test_pieces_sent_before_a_crash_are_not_repeated(tmp_path: Path) -> None:
    words = [f"word-{number}-{'x' * 90}" for number in range(400)]
    with BotApi() as api, scripted_model([{"says": {"text": " ".join(words), "piece": 4000}}]) as model:
        ann = api.person("Ann")
        gateway = BotGateway(tmp_path / "home", api, model)

        def kill(call: Call) -> None:
            if call.method == "sendmessage" and len(api.sent) == 5:
                gateway.kill()
                raise ConnectionError  # it never had an effect

        api.on_call = kill
        with gateway:
            api.say(ann.dm, "much", ann)
            wait_until(lambda: not gateway.running)
        api.on_call = lambda _: None
        with gateway:
            api.until(lambda: api.texts(ann.dm.id) and api.texts(ann.dm.id)[-1].endswith(words[-1]))
            gateway.stop()
        assert " ".join(api.texts(ann.dm.id)) == " ".join(words)


@pytest.mark.contract("2.1")
def test_message_whose_turn_a_crash_cut_off_is_answered_after_restart(tmp_path: Path) -> None:
    answers = [{"says": {"text": "never heard", "delay": 60.0}}]
    with BotApi() as api, scripted_model(answers) as model:
        ann = api.person("Ann")
        gateway = BotGateway(tmp_path / "home", api, model)
        with gateway:
            number = api.push({"message": api.message(ann.dm, ann, text="hello")})
            api.until(lambda: number in api.confirmed)
            wait_until(model.asked)
            gateway.kill()
        with gateway:
            api.until(lambda: api.texts(ann.dm.id) == ["hello"])
            gateway.stop()
        assert gateway.said() == ["hello"]


@pytest.mark.timeout(180)
@pytest.mark.contract("2.1")
def test_message_that_kills_the_gateway_is_dropped_and_others_are_answered(tmp_path: Path) -> None:
    with BotApi() as api, scripted_model() as model:
        people = [api.person(f"P{number}") for number in range(4)]
        gateway = BotGateway(tmp_path / "home", api, model)
        gateway.wrap(POISONED)
        for person in people[1:]:
            api.say(person.dm, f"{person.name}: hello", person)
        api.say(people[0].dm, "poison", people[0])
        lives = 0
        with gateway:
            while not gateway.rows("SELECT 1 FROM hermes_queue WHERE queue = 'inbox' AND state = 'dead'"):
                wait_until(
                    lambda: not gateway.running or gateway.rows("SELECT 1 FROM hermes_queue WHERE state = 'dead'")
                )
                if not gateway.running:
                    lives += 1
                    gateway.begin()
            api.until(lambda: all(api.texts(person.id) for person in people))
            gateway.stop()
        assert api.texts(people[0].id) == ["I could not answer."]
        assert gateway.rows("SELECT reason FROM hermes_queue WHERE state = 'dead'") == [(GIVEN_UP,)]
        assert lives == MIN_SUSPECT_CRASHES + MAX_CRASHES
        assert [api.texts(person.id)[-1] for person in people[1:]] == [f"{one.name}: hello" for one in people[1:]]
        assert gateway.said("assistant")[-1] == "I could not answer.", "the session shows it too"
