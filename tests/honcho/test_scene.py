"""The README's first promise: a fact of one session is used in the next, on another platform, after a restart."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.cli.chatting import serving
from tests.gateway.processes import GatewayProcess
from tests.honcho.configuring import Machine
from tests.honcho.fresh import UNSAID, FreshHome, fresh_home
from tests.plain_http import PLAIN

pytestmark = pytest.mark.contract("7.13")
TOLD, ASKED = "My cat is called Miso.", "What is my cat called?"
API = {"API_SERVER_ENABLED": "true", "API_SERVER_PORT": "0"}


@pytest.fixture
def folder(processes: None, machine: Machine, tmp_path: Path) -> Path:
    """A home's folder; the user's folder is another one."""
    return tmp_path


def ask_over_api(fresh: FreshHome) -> str:
    """Ask over the HTTP API in a new session, and return the reply."""
    model = {name: value for name, value in fresh.env.items() if name.startswith(("OPENAI_", "HERMES_MODEL"))}
    with GatewayProcess(fresh.home, env={**API, **UNSAID, **model}) as gateway:
        body = {"model": "h", "messages": [{"role": "user", "content": ASKED}]}
        headers = {"X-Hermes-Session-Key": "agent:main:api_server:dm:web"}
        answer = httpx.post(
            f"{gateway.url}/chat/completions", json=body, headers=headers, timeout=120, trust_env=False, verify=PLAIN
        )
        assert answer.status_code == 200, answer.text
        gateway.stop()
    return str(answer.json()["choices"][0]["message"]["content"])


def test_without_a_model_the_answer_comes_from_memory(folder: Path) -> None:
    with fresh_home(folder) as fresh:
        fresh.chat("-q", TOLD)
        fresh.deliver()
        fresh.restart()
        assert "Miso" in ask_over_api(fresh)


def test_a_model_gets_the_fact_with_the_question(folder: Path) -> None:
    with serving([], then={"echo": True}) as endpoint, fresh_home(folder, endpoint.base_url) as fresh:
        fresh.hermes("config", "set", "memory.first_deadline", "60")  # a busy machine starts a server slowly
        fresh.chat("-q", TOLD)
        fresh.deliver()
        fresh.restart()
        ask_over_api(fresh)
        messages = endpoint.requests()[-1]["messages"]
    [asked] = [message["content"] for message in messages if message["role"] == "user"]
    memory, _, question = asked.partition("</memory-context>")
    assert "Miso" in memory
    assert ASKED in asked
    assert "Miso" not in question


def test_model_without_memory_does_not_know_the_fact(folder: Path) -> None:
    """The control: without memory the request does not contain the fact."""
    with serving([], then={"echo": True}) as endpoint, fresh_home(folder, endpoint.base_url) as fresh:
        fresh.hermes("config", "set", "memory.provider", "none")
        fresh.chat("-q", TOLD)
        ask_over_api(fresh)
        assert "Miso" not in str(endpoint.requests()[-1]["messages"])
