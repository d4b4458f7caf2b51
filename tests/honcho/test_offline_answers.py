"""Without a model, answers consist of recalled memory of the right person alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.chatting import chat
from tests.gateway.asking import ask, in_session, reply
from tests.gateway.processes import GatewayProcess, wait_until, write_config
from tests.honcho.configuring import Machine
from tests.honcho.fresh import UNSAID, FreshHome, fresh_home
from tests.left_behind import end_all

pytestmark = pytest.mark.contract("10.5")
TOLD = "Hi! I'm Nina and I moved to Porto.\nMy dog Rex is three years old.\nThe wifi password is hunter22.\n"
PATIENT = ("config", "set", "memory.first_deadline", "60")
"""Gives a busy machine time to recall."""

UNDELIVERED = "SELECT 1 FROM hermes_queue WHERE queue LIKE 'memory:%' AND state = 'waiting'"


@pytest.fixture
def fresh(processes: None, machine: Machine, tmp_path: Path) -> Iterator[FreshHome]:
    with fresh_home(tmp_path) as made:
        made.hermes(*PATIENT)
        chat(made.env, said=TOLD)
        made.deliver()
        yield made


def test_a_new_home_answers_from_a_memory_that_was_imported(fresh: FreshHome, tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    assert fresh.hermes("memory", "export", "hermes", str(file)).code == 0
    with fresh_home(tmp_path / "new") as new:
        new.hermes(*PATIENT)
        assert new.hermes("memory", "import", str(file)).code == 0
        said = "What's my name?\nWhere do I live?\nHow old is my dog?\nwhat do you know about me?\n"
        name, home, dog, whole = chat(new.env, said=said, timeout=180).out.splitlines()
        assert name.startswith("Your name is Nina. From memory: “Hi! I'm Nina")
        assert home == "From memory: “Hi! I'm Nina and I moved to Porto.”"
        assert dog == "From memory: “My dog Rex is three years old.”"
        assert whole.startswith("You are Nina. From memory, about you: - “Hi! I'm Nina")
        assert "hunter22" not in whole
        new.restart()
        assert "hunter22" in new.chat("-q", "What is the wifi password?").out


def test_incognito_answers_from_nothing_that_is_remembered(fresh: FreshHome) -> None:
    said = "/memory off\nWhat's my name?\nwho am I?\nHow old is my dog?\n/memory on\nHow old is my dog?\n"
    lines = chat(fresh.env, said=said, timeout=180).out.splitlines()
    assert "I was not told your name." in lines
    assert "I was not told anything about you yet." in lines
    assert "I remember nothing about that." in lines
    assert "Nina" not in " ".join(lines)
    assert lines[-1] == "From memory: “My dog Rex is three years old.”"


def test_people_of_one_gateway_are_answered_from_their_own_lines(
    processes: None, machine: Machine, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    write_config(home, {"api.enabled": True, "api.port": 0, "api.users": "guests", "memory.first_deadline": 60})
    try:
        with GatewayProcess(home, env=UNSAID) as gateway:
            told = {"ann": "My name is Ann and I live in Oslo.", "bob": "My name is Bob and I live in Lima."}
            for user, text in told.items():
                reply(ask(gateway.url, text, headers=in_session(user), user=user))
            wait_until(lambda: not gateway.rows(UNDELIVERED))
            for user, text in told.items():
                for question in ("What's my name?", "Where do I live?", "what do you know about me?"):
                    answer = reply(ask(gateway.url, question, headers=in_session(f"{user}-later"), user=user))
                    assert text in answer
                    assert not any(other in answer for whose, other in told.items() if whose != user)
            answer = reply(ask(gateway.url, "Where does Bob live?", headers=in_session("ann-later"), user="ann"))
            assert "Lima" not in answer
            assert "evidence" in gateway.hermes("memory", "explain")
    finally:
        end_all(home)
