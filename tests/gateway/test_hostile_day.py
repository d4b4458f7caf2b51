"""A day of adverse use: people, programs and terminals in the same sessions, commands, network faults, and kills."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx
import pytest

from tests.db.processes import ROOT
from tests.gateway.asking import body, in_session
from tests.gateway.bot_api import BotApi, Place
from tests.gateway.processes import BotGateway, clean_env, scripted_model, wait_until
from tests.plain_http import PLAIN
from tests.scale import scale

pytestmark = pytest.mark.processes

SECONDS = scale(4, 300)
PADDING = "stamps from Malta and from Gozo " * 15
COMMANDS = ("/stop", "/stop", "/new", "/compress stamps", "/memory off", "/memory on", "/status", "/title x")
SETTINGS = {
    "api.enabled": True,
    "api.port": 0,
    "gateway.drain": 3,
    "model.context_length": 8000,
    "telegram.mentions_only": False,
}


@dataclass
class Day:
    """The actions of all participants."""

    api: BotApi
    gateway: BotGateway
    seed: int
    over: threading.Event = field(default_factory=threading.Event)
    chats: dict[int, list[str]] = field(default_factory=dict)
    """The messages in each chat on Telegram, in order."""
    answered: list[str] = field(default_factory=list)
    """The replies over HTTP."""
    wrong: list[str] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=count)

    def run(self) -> None:
        """Run all participants at the same time."""
        doing = [self.talk_on_telegram, self.talk_over_http, self.talk_over_http, self.talk_in_terminals]
        people = [threading.Thread(target=one, args=(random.Random(self.seed + n),)) for n, one in enumerate(doing)]
        for one in people:
            one.start()
        try:
            self.kill_now_and_then(random.Random(self.seed))
        finally:
            self.over.set()
            for one in people:
                one.join()

    def _text(self, chance: random.Random) -> str:
        return f"{next(self._numbers)}: {chance.choice(('hello', PADDING))}".strip()

    def talk_on_telegram(self, chance: random.Random) -> None:
        ann, group = self.api.person("Ann"), self.api.small_group("Garden")
        whole = {ann.dm.id: ann.dm, group.id: group}
        self.chats = {place: [] for place in whole}
        while not self.over.wait(chance.uniform(0, 0.3)):
            first = chance.choice(list(whole))
            if chance.random() < 0.7:
                text = self._text(chance)
                self.chats[first].append(text)
                self.api.say(whole[first], text, ann)
            elif chance.random() < 0.6:
                self.api.say(whole[first], chance.choice(COMMANDS), ann)
            elif whole[group.id] == group and chance.random() < 0.3:
                whole[group.id] = self._move(group, chance)
            else:
                self.api.lose(chance.choice(("sendMessage", "getUpdates")), chance.choice(("lost", "unheard")))

    def _move(self, group: Place, chance: random.Random) -> Place:
        wide = self.api.upgrade(group)
        updates = [*self.api.move_updates(group, wide)] * 2
        chance.shuffle(updates)
        for update in updates:
            self.api.push(update)
        return wide

    def talk_over_http(self, chance: random.Random) -> None:
        while not self.over.is_set():
            session = f"s{chance.randrange(2)}"
            if chance.random() < 0.3:
                self._post(session, chance.choice(("/stop", "/compress", "/status")), None, 10.0)
                continue
            text = self._text(chance)
            while not self._post(session, text, text.split(":")[0], chance.choice((0.2, 20.0))):
                if self.over.is_set():
                    return
            self.answered.append(text)

    def _post(self, session: str, text: str, key: str | None, timeout_seconds: float) -> bool:
        """Return True if there is a response; a client without one asks again."""
        url, headers = f"{self.gateway.url}/chat/completions", in_session(session, key)
        try:
            answer = httpx.post(
                url, json=body(text), headers=headers, timeout=timeout_seconds, trust_env=False, verify=PLAIN
            )
        except httpx.TransportError:
            time.sleep(0.1)
            return False
        if answer.status_code not in (200, 503):
            self.wrong.append(f"{text}: {answer.status_code} {answer.text}")
        return answer.status_code == 200

    def talk_in_terminals(self, chance: random.Random) -> None:
        while not self.over.wait(chance.uniform(0, 1)):
            found = self.gateway.rows("SELECT id FROM sessions")
            if not found:
                continue
            asked = ["chat", "-q", f"{next(self._numbers)}: in a terminal", "-s", str(chance.choice(found)[0])]
            env = clean_env(HERMES_HOME=str(self.gateway.home))
            ran = subprocess.run(
                [sys.executable, "-m", "hermes", *asked], cwd=ROOT, env=env, capture_output=True, text=True, check=False
            )
            if ran.returncode != 0:
                self.wrong.append(ran.stderr)

    def kill_now_and_then(self, chance: random.Random) -> None:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.5, 3))
            end: Callable[[], None] = chance.choice((self.gateway.kill, self.gateway.kill, self.gateway.stop))
            end()
            self.gateway.start()


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.contract("1.2", "1.6", "2.1", "2.2", "2.3", "2.6", "P1", "P2")
@pytest.mark.parametrize("seed", [scale(1, number) for number in range(scale(1, 5))])
def test_acknowledged_messages_of_a_hostile_day_are_stored_once_in_order(tmp_path: Path, seed: int) -> None:
    slow = {"echo": True, "delay": 0.3, "pause": 0.005}
    with BotApi() as api, scripted_model(then=slow) as model:
        with BotGateway(tmp_path / "home", api, model, SETTINGS) as gateway:
            gateway.start()
            day = Day(api, gateway, seed)
            day.run()
            api.recover()
            wait_until(lambda: not api.unconfirmed(), seconds=60)
            left = "SELECT 1 FROM hermes_queue WHERE state = 'waiting' LIMIT 1"
            wait_until(lambda: not gateway.rows(left), seconds=200)
            gateway.stop()
        _check(gateway, day)


def _check(gateway: BotGateway, day: Day) -> None:
    assert day.wrong == []
    said = gateway.said()
    assert [text for text, times in Counter(said).items() if times > 1] == []
    notes = gateway.rows("SELECT payload, reason FROM hermes_queue WHERE queue = 'inbox' AND payload <> 'null'")
    stopped = {json.loads(str(payload))["text"] for payload, note in notes if "stopped" in json.loads(str(note))}
    for spoken in day.chats.values():
        stored = [text for text in said if text in set(spoken)]
        assert stored == [text for text in spoken if text in set(stored)], "the order was changed"
        assert set(spoken) - set(stored) <= stopped
    assert set(day.answered) - set(said) <= stopped
    assert gateway.rows("SELECT queue, key, reason FROM hermes_queue WHERE state <> 'done'") == []
    assert gateway.rows("SELECT name FROM hermes_leases WHERE owner IS NOT NULL") == []
    assert gateway.rows("PRAGMA integrity_check") == [("ok",)]
    assert "Traceback" not in gateway.output()
