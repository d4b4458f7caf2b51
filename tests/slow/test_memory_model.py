"""A small real model behind our own memory server: answers through `hermes`, and facts that it must not lose."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from honcho import Honcho

from bench.memory_server import wait_until_learnt
from bench.model_adds import LIVES, ask_all, set_model
from tests.cli.screen import CTRL_D, ENTER, Screen, plain_env
from tests.llm.beside import beside
from tests.llm.loopback import LoopbackServer, says
from tests.memory_server.serving import running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.environ.get("HERMES_SLOW") != "1", reason="needs a model of 1.2 GB: `make slow` fetches it"),
]
TOLD = "I live in Lisbon and my cat is called Miso.\nI am allergic to walnuts.\n"


@pytest.mark.contract("9.3")
@pytest.mark.parametrize("name", LIVES)
def test_a_small_model_loses_nothing_that_was_told(base_url: str, tmp_path: Path, name: str) -> None:
    life = LIVES[name]
    with running(tmp_path) as served, ExitStack() as stack:
        client = Honcho(base_url=served.url, workspace_id=name, api_key="none", timeout=300)
        stack.callback(client._http.close)
        person = client.peer("ann")
        client.session("s").add_messages([person.message(fact) for fact in life.facts])
        wait_until_learnt(client)
        right, admitted, _, _ = ask_all(client, life)
        set_model(tmp_path, base_url, "point")
        right_with, admitted_with, _, answers = ask_all(client, life)
        set_model(tmp_path, base_url, None)
    assert right_with >= right - 1, answers
    assert admitted_with >= admitted, answers


@pytest.mark.contract("7.4", "9.3")
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_dialectic_asks_a_real_model_at_every_depth(base_url: str, home: Path, depth: int) -> None:
    env = {**plain_env(home), "HERMES_MEMORY_PROVIDER": ""}  # the default

    def hermes(*arguments: str, said: str | None = None) -> str:
        command = [sys.executable, "-m", "hermes", *arguments]
        return subprocess.run(command, env=env, input=said, text=True, stdout=subprocess.PIPE, check=True).stdout

    def asked() -> list[tuple[str]]:
        with closing(sqlite3.connect(home / "memory" / "memory.db")) as file:
            query = "SELECT outcome FROM model_calls WHERE purpose = 'dialectic' AND outcome != 'sent'"
            return list(file.execute(query))

    home.mkdir()
    with beside(LoopbackServer(then=says("All right."))) as talker:  # who chats is not what is tested
        (home / "config.yaml").write_text(f"model: {{base_url: '{talker.base_url}', default: loop-1, tools: 'off'}}\n")
        (home / "honcho.json").write_text(json.dumps({"dialecticDepth": depth, "dialecticCadence": 1}))
        hermes("memory", "model", "--url", base_url, "--no-test", "--class", "compose")
        hermes("chat", said=TOLD)
        with Screen("chat", env=env, patience=300) as screen:
            screen.wait_for_prompt()
            for turn in (1, 2):
                screen.type(f"What should I cook tonight, number {turn}?{ENTER}")
                screen.wait_for("All right.")
                deadline = time.monotonic() + 900
                while len(asked()) < turn:  # a strong first answer ends the passes
                    assert time.monotonic() < deadline, asked()
                    time.sleep(1)
            screen.type(CTRL_D)
            assert screen.ended() == 0
        hermes("memory", "stop")
    outcomes = [outcome for (outcome,) in asked()]
    assert outcomes.count("ok") >= 2, outcomes
    assert set(outcomes) <= {"ok", "unfinished"}, "the end of a conversation stops what is still asked for it"
